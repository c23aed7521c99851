// A command with a descendant that detaches, and what is left of it.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** Says so when it is set up, so that it is not stopped before. */
export const DETACHING = "setsid sleep 600 & echo $! > pid; echo > ready; wait";

/** Whether the descendant of DETACHING has ended. */
export function isGone(work: string): boolean {
  return !existsSync(`/proc/${readFileSync(join(work, "pid"), "utf8").trim()}`);
}
