// The part of an output that is loaded: windows of 256 KiB, adjacent to each other, split into rows.
//
// A row is a range of bytes, decoded when it is shown, so that 64 MiB cost no more than what is on the screen. Rows know the style
// that they begin with, because colours may go on over line ends.

import { request, queryText } from "./api";
import { overwritten, pieces, type Style } from "./ansi";

export const WINDOW = 256 * 1024;
/** Windows kept at once; the farthest from the last one loaded is dropped. */
const MAX_WINDOWS = 4;
/** A longer line goes on in the next row. */
const MAX_ROW = 2000;

export interface Row {
  /** Cursor of its first byte. */
  at: number;
  text: string;
  style: Style;
}

interface Line {
  from: number;
  to: number;
  style: Style;
}

interface Part {
  start: number;
  bytes: Uint8Array;
  lines: Line[];
  /** Bytes that are no longer stored, right before it. */
  gap: [number, number] | null;
}

export interface Read {
  bytes: Uint8Array;
  cursor: number;
  next: number;
  end: number;
  closed: boolean;
  gap: [number, number] | null;
}

/** Reads bytes by cursor, or the last ones. */
export async function readBytes(id: string, query: Record<string, unknown>, abort?: AbortSignal): Promise<Read> {
  const answer = await request(`/v1/processes/${id}/output${queryText({ format: "raw", ...query })}`, { signal: abort ?? null });
  const number = (name: string) => Number(answer.headers.get(name));
  const gap = answer.headers.has("pinfold-gap-from") ? ([number("pinfold-gap-from"), number("pinfold-gap-to")] as [number, number]) : null;
  return {
    bytes: new Uint8Array(await answer.arrayBuffer()),
    cursor: number("pinfold-cursor"),
    next: number("pinfold-next-cursor"),
    end: number("pinfold-end"),
    closed: answer.headers.get("pinfold-closed") === "true",
    gap,
  };
}

const decoder = new TextDecoder();

export class LogStore {
  private parts: Part[] = [];
  /** All bytes there are, loaded or not. */
  end = 0;
  closed = false;
  private width = MAX_ROW;

  constructor(readonly id: string) {}

  /** Cursor of the first and after the last byte that is loaded. */
  get from(): number {
    return this.parts[0]?.start ?? 0;
  }
  get to(): number {
    const last = this.parts.at(-1);
    return last ? last.start + last.bytes.length : 0;
  }

  get rowCount(): number {
    return this.parts.reduce((sum, part) => sum + part.lines.length + (part.gap ? 1 : 0), 0);
  }

  row(index: number): Row | null {
    for (const part of this.parts) {
      if (part.gap) {
        if (index === 0) {
          const missing = part.gap[1] - part.gap[0];
          return { at: part.gap[0], text: `… ${missing.toLocaleString()} bytes were dropped here …`, style: { italic: true, dim: true } };
        }
        index--;
      }
      const line = part.lines[index];
      if (line) {
        const text = decoder.decode(part.bytes.subarray(line.from, line.to));
        return { at: part.start + line.from, text: overwritten(text), style: line.style };
      }
      index -= part.lines.length;
    }
    return null;
  }

  /** The row with the byte at this cursor. */
  indexOf(cursor: number): number {
    let before = 0;
    for (const part of this.parts) {
      if (part.gap) before++;
      if (cursor < part.start + part.bytes.length || part === this.parts.at(-1)) {
        let low = 0;
        let high = part.lines.length - 1;
        while (low < high) {
          const middle = (low + high + 1) >> 1;
          if (part.start + part.lines[middle]!.from <= cursor) low = middle;
          else high = middle - 1;
        }
        return before + Math.max(0, low);
      }
      before += part.lines.length;
    }
    return 0;
  }

  text(): string {
    return this.parts.map((part) => decoder.decode(part.bytes)).join("");
  }

  /** Rows are this many bytes long at most; for wrapping, the columns of the screen. */
  setWidth(width: number | null): void {
    this.width = width ?? MAX_ROW;
    this.parts.forEach((part) => this.split(part, {}));
  }

  /** Loads the window around a cursor and forgets the rest. */
  async jump(cursor: number, abort?: AbortSignal): Promise<void> {
    const start = Math.max(0, cursor - WINDOW / 4);
    const read = await readBytes(this.id, { cursor: start, max_bytes: WINDOW }, abort);
    this.parts = [];
    this.add(read, start === 0 || read.cursor > start);
  }

  async jumpToEnd(abort?: AbortSignal): Promise<void> {
    const read = await readBytes(this.id, { tail: WINDOW }, abort);
    this.parts = [];
    this.add(read, read.cursor === 0);
  }

  /** Loads what comes before; says how many rows were added. */
  async before(abort?: AbortSignal): Promise<number> {
    const to = this.from;
    const first = this.parts[0];
    if (to === 0 || !first || first.gap) return first?.gap ? this.beforeGap(first.gap[0], abort) : 0;
    const start = Math.max(0, to - WINDOW);
    const read = await readBytes(this.id, { cursor: start, max_bytes: to - start }, abort);
    const kept = read.bytes.subarray(0, Math.max(0, to - read.cursor));
    return this.prepend({ ...read, bytes: kept }, start === 0 || read.cursor > start);
  }

  private async beforeGap(to: number, abort?: AbortSignal): Promise<number> {
    const start = Math.max(0, to - WINDOW);
    const read = await readBytes(this.id, { cursor: start, max_bytes: to - start }, abort);
    return read.cursor >= to ? 0 : this.prepend(read, start === 0);
  }

  private prepend(read: Read, whole: boolean): number {
    const part = this.part(read, whole);
    if (part.bytes.length === 0) return 0;
    this.parts.unshift(part);
    if (this.parts.length > MAX_WINDOWS) this.parts.pop();
    return part.lines.length + (part.gap ? 1 : 0);
  }

  /** Loads what comes after, waiting for it if `wait` is given; says how many rows went away at the beginning. */
  async after(wait?: string, abort?: AbortSignal): Promise<{ dropped: number; added: boolean }> {
    const read = await readBytes(this.id, { cursor: this.to, max_bytes: WINDOW, wait }, abort);
    this.end = Math.max(this.end, read.end);
    this.closed = read.closed && read.next >= read.end;
    if (read.bytes.length === 0) return { dropped: 0, added: false };
    const last = this.parts.at(-1);
    if (last && !read.gap && last.bytes.length + read.bytes.length <= WINDOW) {
      const joined = new Uint8Array(last.bytes.length + read.bytes.length);
      joined.set(last.bytes);
      joined.set(read.bytes, last.bytes.length);
      last.bytes = joined;
      this.split(last, last.lines[0]?.style ?? {});
    } else {
      this.add(read, true);
    }
    let dropped = 0;
    while (this.parts.length > MAX_WINDOWS) {
      const gone = this.parts.shift()!;
      dropped += gone.lines.length + (gone.gap ? 1 : 0);
    }
    return { dropped, added: true };
  }

  private add(read: Read, whole: boolean): void {
    this.end = Math.max(this.end, read.end);
    this.closed = read.closed && read.next >= read.end;
    this.parts.push(this.part(read, whole));
  }

  /** A window that does not begin with a line leaves out the rest of the line before. */
  private part(read: Read, whole: boolean): Part {
    let { bytes, cursor } = read;
    if (!whole) {
      const newline = bytes.indexOf(10);
      if (newline >= 0 && newline < MAX_ROW * 4) {
        bytes = bytes.subarray(newline + 1);
        cursor += newline + 1;
      }
    }
    const part: Part = { start: cursor, bytes, lines: [], gap: read.gap };
    this.split(part, {});
    return part;
  }

  private split(part: Part, begin: Style): void {
    const { bytes } = part;
    const coloured = bytes.indexOf(27) >= 0;
    const lines: Line[] = [];
    let style = begin;
    let from = 0;
    while (from < bytes.length) {
      const newline = bytes.indexOf(10, from);
      let to = newline < 0 ? bytes.length : newline;
      let next = to + 1;
      if (to - from > this.width) {
        to = from + this.width;
        // Not inside a character.
        while (to > from + 1 && (bytes[to]! & 0xc0) === 0x80) to--;
        next = to;
      }
      lines.push({ from, to, style });
      if (coloured && bytes.subarray(from, to).indexOf(27) >= 0) {
        style = pieces(decoder.decode(bytes.subarray(from, to)), style)[1];
      }
      from = next;
    }
    part.lines = lines;
  }
}
