// A sandbox session for `experimental_sandbox` of the AI SDK: its commands are processes of pinfold.
//
// Its type is written out here, so that this package needs no other; the tests compare it with `Experimental_SandboxSession`. All that it
// does, file operations included, is done by commands: so it works with a remote daemon too, and a sandbox confines everything alike.

import { resolve } from "node:path";

import { Pinfold, type PinfoldOptions } from "../client.js";
import type { Process } from "../process.js";
import type { StartOptions } from "../types.js";
import { environment, exitCode, readStream, STOP_GRACE, tryStop } from "./commands.js";

export { OutcomeLostError, OutputLimitError } from "./commands.js";

/** Of each stream of a command, and of one file. Beyond it, `OutputLimitError`. */
const MAX_BYTES = 64 << 20;
const OWNER = "ai-sdk";

// Exit codes of the scripts below.
const MISSING = 44;
const WRONG_KIND = 45;
const EXISTS = `[ -e "$1" ] || [ -L "$1" ] || exit ${MISSING}`;
const READ = `[ -e "$1" ] || exit ${MISSING}; [ ! -d "$1" ] || exit ${WRONG_KIND}; exec cat -- "$1"`;
const WRITE = `[ ! -d "$1" ] || exit ${WRONG_KIND}; case $1 in */*) mkdir -p -- "\${1%/*}/" || exit 1 ;; esac; exec cat >"$1"`;
const STAT = `[ -e "$1" ] || exit ${MISSING}; exec stat -L -c '%f %s' -- "$1"`;
const LIST = `[ -e "$1" ] || exit ${MISSING}; [ -d "$1" ] || exit ${WRONG_KIND}; exec find "$1/" -mindepth 1 -maxdepth 1 -printf '%y%f\\0'`;
const DELETE = `${EXISTS}; [ -L "$1" ] || [ ! -d "$1" ] || exit ${WRONG_KIND}; exec rm -f -- "$1"`;

export interface PinfoldSandboxOptions extends PinfoldOptions {
  /** Where commands start and relative paths begin; it must exist. Default: the current directory. */
  workingDirectory?: string | undefined;
  /** Environment variables of every command, besides PATH, HOME, locale and the like. */
  env?: Readonly<Record<string, string>> | undefined;
  /** True: commands get all environment variables of this program, API keys included. */
  inheritEnv?: boolean | undefined;
  /** Options of every start, such as `{ sandbox: "workspace-write,network=none" }`. */
  start?: StartOptions | undefined;
}

interface CommandOptions {
  command: string;
  workingDirectory?: string;
  env?: Record<string, string>;
  abortSignal?: AbortSignal;
}

interface PathOptions {
  path: string;
  abortSignal?: AbortSignal;
}

interface WriteOptions<Content> extends PathOptions {
  content: Content;
}

export interface SandboxProcess {
  readonly stdout: ReadableStream<Uint8Array>;
  readonly stderr: ReadableStream<Uint8Array>;
  wait(): Promise<{ exitCode: number }>;
  kill(): Promise<void>;
}

export interface WritableSandboxProcess extends SandboxProcess {
  readonly stdin: WritableStream<Uint8Array>;
}

/** A directory, and the processes that are started in it. An aborted command is stopped with its whole tree. */
export class PinfoldSandbox implements AsyncDisposable {
  readonly description: string;
  private readonly pf: Pinfold;
  private readonly base: string;
  private readonly start: StartOptions;

  constructor(options: PinfoldSandboxOptions = {}) {
    const { workingDirectory, env, inheritEnv, start, ...connection } = options;
    this.pf = new Pinfold({ owner: OWNER, ...connection });
    this.base = resolve(workingDirectory ?? ".");
    this.start = { ...start, inheritEnv: false, env: { ...environment(env, inheritEnv), ...start?.env } };
    this.description = `A Linux machine. Commands run by /bin/sh in ${this.base}. A command that is left running in the background keeps running.`;
  }

  async run(options: CommandOptions): Promise<{ exitCode: number; stdout: string; stderr: string }> {
    const process = await this.startCommand(["/bin/sh", "-c", options.command], options, {});
    const code = await waitOrStop(process, options.abortSignal);
    const [stdout, stderr] = [await readStream(process, "stdout", MAX_BYTES), await readStream(process, "stderr", MAX_BYTES)];
    return { exitCode: code, stdout: stdout.toString(), stderr: stderr.toString() };
  }

  spawn(options: CommandOptions & { stdin: true }): Promise<WritableSandboxProcess>;
  spawn(options: CommandOptions & { stdin?: false }): Promise<SandboxProcess>;
  spawn(options: CommandOptions & { stdin?: boolean }): Promise<SandboxProcess | WritableSandboxProcess>;
  async spawn(options: CommandOptions & { stdin?: boolean }): Promise<SandboxProcess | WritableSandboxProcess> {
    const { abortSignal, stdin } = options;
    const process = await this.startCommand(["/bin/sh", "-c", options.command], options, stdin ? { stdin: "pipe" } : {});
    const exited = waitOrStop(process, abortSignal);
    // Whoever does not call `wait` is not interested in how it ends.
    exited.catch(() => {});
    const handle = {
      stdout: streamOf(process, "stdout"),
      stderr: streamOf(process, "stderr"),
      wait: async () => ({ exitCode: await exited }),
      kill: async () => void (await process.stop({ grace: STOP_GRACE })),
    };
    return stdin ? { ...handle, stdin: inputOf(process) } : handle;
  }

  async readFile(options: PathOptions): Promise<ReadableStream<Uint8Array> | null> {
    const data = await this.readBinaryFile(options);
    return data && new Blob([data as Uint8Array<ArrayBuffer>]).stream();
  }

  async readBinaryFile({ path, abortSignal }: PathOptions): Promise<Uint8Array | null> {
    return this.fileCommand(READ, path, abortSignal);
  }

  async readTextFile(options: PathOptions & { encoding?: string; startLine?: number; endLine?: number }): Promise<string | null> {
    const data = await this.readBinaryFile(options);
    if (data === null) return null;
    const text = new TextDecoder(options.encoding ?? "utf-8").decode(data);
    if (options.startLine === undefined && options.endLine === undefined) return text;
    // Each line with its end, so that the lines of a range are what the file has there.
    const lines = text.match(/[^\n]*\n|[^\n]+$/g) ?? [];
    return lines.slice((options.startLine ?? 1) - 1, options.endLine).join("");
  }

  async writeFile({ content, ...rest }: WriteOptions<ReadableStream<Uint8Array>>): Promise<void> {
    await this.write(rest, content);
  }

  async writeBinaryFile({ content, ...rest }: WriteOptions<Uint8Array>): Promise<void> {
    await this.write(rest, [content]);
  }

  async writeTextFile({ content, encoding = "utf-8", ...rest }: WriteOptions<string> & { encoding?: string }): Promise<void> {
    if (!Buffer.isEncoding(encoding)) throw new TypeError(`encoding is ${JSON.stringify(encoding)}, which cannot be written: use "utf-8", "utf-16le" or "latin1"`);
    await this.write(rest, [Buffer.from(content, encoding)]);
  }

  async stat({ path, abortSignal }: PathOptions): Promise<{ type: "file" | "directory" | "other"; size: number } | null> {
    const line = await this.fileCommand(STAT, path, abortSignal);
    if (line === null) return null;
    const [mode = "", size] = line.toString().trim().split(" ");
    const kind = Number.parseInt(mode, 16) & 0o170000;
    return { type: kind === 0o100000 ? "file" : kind === 0o040000 ? "directory" : "other", size: Number(size) };
  }

  async listDirectory({ path, abortSignal }: PathOptions): Promise<{ name: string; type: "file" | "directory" | "symlink" | "other" }[] | null> {
    const listing = await this.fileCommand(LIST, path, abortSignal);
    const types = { f: "file", d: "directory", l: "symlink" } as const;
    return listing && listing.toString().split("\0").slice(0, -1).map((entry) => ({ name: entry.slice(1), type: types[entry[0] as "f"] ?? "other" }));
  }

  async deleteFile({ path, abortSignal }: PathOptions): Promise<boolean> {
    return (await this.fileCommand(DELETE, path, abortSignal)) !== null;
  }

  /** Closes the connections. What was started runs on. */
  async close(): Promise<void> {
    await this.pf.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  private async startCommand(argv: string[], { workingDirectory, env, abortSignal }: Omit<CommandOptions, "command">, own: StartOptions): Promise<Process> {
    abortSignal?.throwIfAborted();
    const cwd = resolve(this.base, workingDirectory ?? ".");
    // Not with the signal: an aborted start could leave a process that nobody knows of.
    return this.pf.start(argv, { ...this.start, ...own, streams: "separate", cwd, env: { ...this.start.env, ...env } });
  }

  private async write({ path, abortSignal }: PathOptions, content: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<void> {
    const process = await this.startFileCommand(WRITE, path, abortSignal, { stdin: "pipe" });
    try {
      for await (const piece of content) await process.send(piece, { signal: abortSignal });
      await process.send("", { eof: true, signal: abortSignal });
    } catch (error) {
      // If it has ended, it refused the path, and its exit code says more.
      if ((await process.refresh()).outcome === null) {
        await tryStop(process);
        throw error;
      }
    }
    await finishFileCommand(process, path, abortSignal);
  }

  /** What a script about this path prints; null if there is nothing at the path. */
  private async fileCommand(script: string, path: string, abortSignal: AbortSignal | undefined): Promise<Buffer | null> {
    return finishFileCommand(await this.startFileCommand(script, path, abortSignal, { outputLimit: MAX_BYTES }), path, abortSignal);
  }

  private startFileCommand(script: string, path: string, abortSignal: AbortSignal | undefined, own: StartOptions): Promise<Process> {
    const safe = path.startsWith("/") ? path : `./${path}`;
    return this.startCommand(["/bin/sh", "-c", script, "sh", safe], { ...(abortSignal && { abortSignal }) }, own);
  }
}

/** The exit code, once there is one. An abort stops the whole tree and throws the reason of the signal. */
async function waitOrStop(process: Process, signal: AbortSignal | undefined): Promise<number> {
  try {
    await process.wait({ signal });
  } catch (error) {
    if (signal?.aborted) await tryStop(process);
    throw error;
  }
  return exitCode(process.id, process.outcome);
}

/** The output of a script about a file. Its process is removed: the record would keep a copy of the file. */
async function finishFileCommand(process: Process, path: string, signal: AbortSignal | undefined): Promise<Buffer | null> {
  const code = await waitOrStop(process, signal);
  await process.wait({ until: "finished" });
  try {
    if (code === 0) return await readStream(process, "stdout", MAX_BYTES);
    if (code === MISSING) return null;
    if (code === WRONG_KIND) throw new TypeError(`${path} is not of the right kind: a directory where a file is needed, or the other way round`);
    throw new Error((await readStream(process, "stderr", MAX_BYTES)).toString().trim() || `${path}: exit code ${code}`);
  } finally {
    await process.remove();
  }
}

function streamOf(process: Process, stream: "stdout" | "stderr"): ReadableStream<Uint8Array> {
  const chunks = process.bytes({ follow: true, stream });
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      const { done, value } = await chunks.next();
      if (done) controller.close();
      else if (value.data.length > 0) controller.enqueue(value.data);
    },
    async cancel() {
      await chunks.return();
    },
  });
}

function inputOf(process: Process): WritableStream<Uint8Array> {
  return new WritableStream<Uint8Array>({
    write: async (piece) => void (await process.send(piece)),
    close: async () => void (await process.send("", { eof: true })),
    abort: async () => void (await process.send("", { eof: true })),
  });
}
