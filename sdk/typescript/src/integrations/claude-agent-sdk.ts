// `spawnClaudeCodeProcess` of the Claude Agent SDK: the agent's own process is a process of pinfold.
//
// If the host program is killed, the agent works on: its input stays open and its output is kept. The types are written out here, so that
// this package needs no other; the tests compare them with `SpawnOptions` and `SpawnedProcess`.

import { EventEmitter } from "node:events";
import { constants } from "node:os";
import { Readable, Writable } from "node:stream";

import { Pinfold, type PinfoldOptions } from "../client.js";
import type { Process } from "../process.js";
import type { Outcome, StartOptions } from "../types.js";
import { STOP_GRACE, tryStop } from "./commands.js";

const OWNER = "claude-agent-sdk";
/** A label of every process that is started here, to find those that an earlier program left. */
export const LABEL = "claude-agent-sdk";
/** How long an exit waits for the rest of the output, if a descendant keeps it open. */
const DRAIN_MS = 2000;

export interface SpawnerOptions extends PinfoldOptions {
  /** Options of the start, such as `{ name: "reviewer", memoryLimit: "4G" }`. */
  start?: StartOptions | undefined;
  /** Called with the process once it runs. */
  onStart?: ((process: Process) => void) | undefined;
  /** Called with what the agent writes to stderr. */
  onStderr?: ((text: string) => void) | undefined;
}

interface SpawnOptions {
  command: string;
  args: string[];
  cwd?: string;
  env: Record<string, string | undefined>;
  signal: AbortSignal;
}

/** A function for the option `spawnClaudeCodeProcess` of `query`. */
export function pinfoldSpawner(options: SpawnerOptions = {}): (options: SpawnOptions) => KeptProcess {
  return (spawn) => new KeptProcess(spawn, options);
}

/** What the SDK sees of the agent's process. */
export class KeptProcess extends EventEmitter<{ exit: [number | null, NodeJS.Signals | null]; error: [Error] }> {
  readonly stdin: Writable;
  readonly stdout: Readable;
  killed = false;
  exitCode: number | null = null;
  signalCode: NodeJS.Signals | null = null;
  /** The process, once it runs. */
  readonly started: Promise<Process>;
  private readonly pf: Pinfold;

  constructor(spawn: SpawnOptions, options: SpawnerOptions) {
    super();
    const { start, onStart, onStderr, ...connection } = options;
    this.pf = new Pinfold({ owner: OWNER, ...connection });
    this.started = this.start(spawn, start);
    this.stdin = this.openInput();
    this.stdout = Readable.from(this.bytes("stdout"), { objectMode: false });
    // A stream without a listener would end the program with its error; the error is emitted below, too.
    this.stdin.on("error", () => {});
    this.stdout.on("error", () => {});
    spawn.signal.addEventListener("abort", () => this.kill("SIGTERM"), { once: true });
    void this.watch(onStart, onStderr);
  }

  /** TERM, then KILL after a grace period, to the whole tree; SIGKILL at once. Other signals are passed on. */
  kill(signal: NodeJS.Signals = "SIGTERM"): boolean {
    if (this.exitCode !== null || this.signalCode !== null) return false;
    this.killed = true;
    const name = signal.replace(/^SIG/, "");
    void this.started
      .then(async (process) => void (name === "TERM" || name === "KILL" ? await tryStop(process, name === "KILL" ? "0s" : STOP_GRACE) : await process.signal(name)))
      .catch(() => {}); // It could not be started, or has ended meanwhile.
    return true;
  }

  private start({ command, args, cwd, env }: SpawnOptions, own: StartOptions | undefined): Promise<Process> {
    const labels = { [LABEL]: "process", ...own?.labels };
    const fixed: StartOptions = { stdin: "pipe", streams: "separate", inheritEnv: false, env, ...(cwd !== undefined && { cwd }) };
    return this.pf.start([command, ...args], { ...own, ...fixed, labels });
  }

  private openInput(): Writable {
    const send = (data: Uint8Array | string, eof: boolean, done: (error?: Error | null) => void) =>
      void this.started.then((process) => process.send(data, { eof })).then(() => done(), done);
    return new Writable({
      decodeStrings: true,
      write: (chunk: Buffer, _, done) => send(chunk, false, done),
      writev: (chunks, done) => send(Buffer.concat(chunks.map(({ chunk }) => chunk as Buffer)), false, done),
      final: (done) => send("", true, done),
    });
  }

  private async *bytes(stream: "stdout" | "stderr"): AsyncGenerator<Uint8Array, void, undefined> {
    const process = await this.started;
    for await (const { data } of process.bytes({ follow: true, stream })) if (data.length > 0) yield data;
  }

  private async watch(onStart: SpawnerOptions["onStart"], onStderr: SpawnerOptions["onStderr"]): Promise<void> {
    try {
      const process = await this.started;
      onStart?.(process);
      const stderr = onStderr ? this.readErrors(onStderr) : Promise.resolve();
      await process.wait();
      await withinDrain([new Promise((done) => this.stdout.once("close", done)), stderr]);
      this.finish(process.outcome);
    } catch (error) {
      // Without a listener, `emit` would throw it where nobody can catch it.
      if (this.listenerCount("error") > 0) this.emit("error", error instanceof Error ? error : new Error(String(error)));
    } finally {
      await this.pf.close();
    }
  }

  private async readErrors(onStderr: (text: string) => void): Promise<void> {
    const decoder = new TextDecoder();
    for await (const data of this.bytes("stderr")) onStderr(decoder.decode(data, { stream: true }));
  }

  private finish(outcome: Outcome | null): void {
    if (outcome?.kind === "exited") this.exitCode = outcome.code;
    else if (outcome?.kind === "signaled") this.signalCode = signalName(outcome.signal);
    else throw new Error(outcome?.kind === "failed_to_start" ? `the agent could not be started: ${outcome.error}` : "how the agent ended was not observed");
    this.emit("exit", this.exitCode, this.signalCode);
  }
}

function signalName(number: number): NodeJS.Signals {
  const found = Object.entries(constants.signals).find(([, value]) => value === number);
  return (found?.[0] ?? "SIGKILL") as NodeJS.Signals;
}

async function withinDrain(work: Promise<unknown>[]): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise((done) => (timer = setTimeout(done, DRAIN_MS)));
  await Promise.race([Promise.allSettled(work), late]);
  clearTimeout(timer);
}
