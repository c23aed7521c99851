// Durations as the daemon writes them, and deadlines on a clock that is never set back.

import { InvalidArgumentError } from "./errors.js";
import type { Duration } from "./types.js";

const UNITS: Record<string, number> = { us: 0.001, ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Milliseconds of a duration. */
export function parseDuration(name: string, text: Duration): number {
  const parts = typeof text === "string" ? [...text.matchAll(/(\d+(?:\.\d+)?)(us|ms|s|m|h|d)/g)] : [];
  if (parts.length === 0 || parts.map((part) => part[0]).join("") !== text) {
    throw new InvalidArgumentError(`${name} is ${JSON.stringify(text)}, which is not a duration: write text with a unit, such as "500ms", "30s" or "1h30m"`);
  }
  return parts.reduce((sum, [, number, unit]) => sum + Number(number) * (UNITS[unit ?? ""] ?? NaN), 0);
}

/** A point in time by which a wait must end; `Infinity` for none. */
export class Deadline {
  private constructor(private readonly at: number) {}

  static after(milliseconds: number): Deadline {
    return new Deadline(performance.now() + milliseconds);
  }

  static of(name: string, timeout: Duration | undefined): Deadline {
    return Deadline.after(timeout === undefined ? Infinity : parseDuration(name, timeout));
  }

  remaining(): number {
    return Math.max(0, this.at - performance.now());
  }
}
