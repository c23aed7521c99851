// What the back ends for frameworks share: the environment of commands, exit codes as a shell gives them, bytes of a stream.

import { PinfoldError } from "../errors.js";
import type { Process } from "../process.js";
import type { Outcome } from "../types.js";

/** Without secrets such as API keys: what programs need to find each other and to read text. */
const PASSED_ON = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"];
/** Time between TERM and KILL for a command that was aborted. */
export const STOP_GRACE = "2s";

/** More output than the framework can be given, or output that is no longer stored. */
export class OutputLimitError extends PinfoldError {}
/** How the command ended was not observed. */
export class OutcomeLostError extends PinfoldError {}

/** The environment of every command: all of this program's, or what programs need; and `own` on top. */
export function environment(own: Readonly<Record<string, string>> = {}, inherit = false): Record<string, string> {
  const names = inherit ? Object.keys(process.env) : PASSED_ON;
  const passed = names.flatMap((name) => (process.env[name] === undefined ? [] : [[name, process.env[name]] as const]));
  return { ...Object.fromEntries(passed), ...own };
}

/** The code that a shell would give. */
export function exitCode(id: string, outcome: Outcome | null): number {
  switch (outcome?.kind) {
    case "exited":
      return outcome.code;
    case "signaled":
      return 128 + outcome.signal;
    case "failed_to_start":
      return 126;
    default:
      throw new OutcomeLostError(`how ${id} ended was not observed: see \`pinfold show ${id}\``);
  }
}

/** What a stream has had so far. */
export async function readStream(process: Process, stream: "stdout" | "stderr", maxBytes: number): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  let size = 0;
  for await (const { data, gap } of process.bytes({ stream })) {
    pieces.push(data);
    size += data.length;
    if (gap || size > maxBytes) {
      throw new OutputLimitError(`${process.id} has more than ${maxBytes >> 20} MiB of output, or it was not all kept: write it to a file, or see \`pinfold logs ${process.id}\``);
    }
  }
  return Buffer.concat(pieces);
}

/** Stops the whole tree; for a call that fails anyway, whose own error is more important. */
export async function tryStop(process: Process, grace = STOP_GRACE): Promise<void> {
  await process.stop({ grace }).catch((error: unknown) => {
    if (!(error instanceof PinfoldError)) throw error;
  });
}
