// Output as written by a program, as lines with colours: SGR sequences become styles, other escape sequences are left out.

export interface Style {
  fg?: string;
  bg?: string;
  bold?: boolean;
  dim?: boolean;
  italic?: boolean;
  underline?: boolean;
  inverse?: boolean;
}

export interface Piece {
  text: string;
  style: Style;
}

// CSI, OSC, other escapes of two or three bytes, and control characters that are not shown.
const ESCAPE = /\x1b\[([0-9;:?<=>]*)[ -/]*([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?|[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f]/g;

/** Splits a line into pieces of one style each, and gives the style that the next line begins with. */
export function pieces(line: string, begin: Style): [Piece[], Style] {
  const found: Piece[] = [];
  let style = begin;
  let at = 0;
  const add = (text: string) => {
    if (text) found.push({ text, style });
  };
  for (const match of line.matchAll(ESCAPE)) {
    add(line.slice(at, match.index));
    at = match.index + match[0].length;
    if (match[2] === "m") style = apply(match[1] ?? "", style);
  }
  add(line.slice(at));
  return [found, style];
}

export function plain(text: string): string {
  return text.replace(ESCAPE, "");
}

/** What a terminal shows of a line that was overwritten from its beginning. */
export function overwritten(line: string): string {
  const trimmed = line.replace(/\r+$/, "");
  return trimmed.slice(trimmed.lastIndexOf("\r") + 1);
}

function apply(codes: string, before: Style): Style {
  const numbers = codes.split(/[;:]/).map((text) => (text === "" ? 0 : Number(text)));
  let style: Style = { ...before };
  for (let at = 0; at < numbers.length; at++) {
    const code = numbers[at]!;
    if (code === 0) style = {};
    else if (code === 1) style.bold = true;
    else if (code === 2) style.dim = true;
    else if (code === 3) style.italic = true;
    else if (code === 4) style.underline = true;
    else if (code === 7) style.inverse = true;
    else if (code === 22) style = { ...style, bold: false, dim: false };
    else if (code === 23) style.italic = false;
    else if (code === 24) style.underline = false;
    else if (code === 27) style.inverse = false;
    else if (code === 39) delete style.fg;
    else if (code === 49) delete style.bg;
    else if (code >= 30 && code <= 37) style.fg = named(code - 30);
    else if (code >= 90 && code <= 97) style.fg = named(code - 82);
    else if (code >= 40 && code <= 47) style.bg = named(code - 40);
    else if (code >= 100 && code <= 107) style.bg = named(code - 92);
    else if (code === 38 || code === 48) {
      let colour: string | undefined;
      if (numbers[at + 1] === 5) {
        colour = indexed(numbers[at + 2] ?? 0);
        at += 2;
      } else if (numbers[at + 1] === 2) {
        colour = `rgb(${clamp(numbers[at + 2])},${clamp(numbers[at + 3])},${clamp(numbers[at + 4])})`;
        at += 4;
      }
      if (colour && code === 38) style.fg = colour;
      if (colour && code === 48) style.bg = colour;
    }
  }
  return style;
}

function clamp(value: number | undefined): number {
  return Math.min(255, Math.max(0, Number(value) || 0));
}

function named(index: number): string {
  return `var(--ansi-${index})`;
}

function indexed(index: number): string {
  if (index < 16) return named(Math.max(0, index));
  if (index >= 232) {
    const grey = clamp(8 + (index - 232) * 10);
    return `rgb(${grey},${grey},${grey})`;
  }
  const level = (value: number) => (value === 0 ? 0 : 55 + value * 40);
  const cube = index - 16;
  return `rgb(${level(Math.floor(cube / 36))},${level(Math.floor(cube / 6) % 6)},${level(cube % 6)})`;
}

/** The style as CSS properties. */
export function css(style: Style): Record<string, string> {
  const [fg, bg] = style.inverse ? [style.bg ?? "var(--panel)", style.fg ?? "var(--text)"] : [style.fg, style.bg];
  const rules: Record<string, string> = {};
  if (fg) rules.color = fg;
  if (bg) rules.backgroundColor = bg;
  if (style.bold) rules.fontWeight = "700";
  if (style.dim) rules.opacity = "0.75";
  if (style.italic) rules.fontStyle = "italic";
  if (style.underline) rules.textDecoration = "underline";
  return rules;
}
