// A handle of one process. It holds the id and the latest record that was seen; the process itself does not depend on it.

import { Deadline, parseDuration } from "./duration.js";
import { describeOutcome, EndedBeforeError, InvalidArgumentError, NotReadyError, WaitCancelled, WaitTimeout } from "./errors.js";
import type { Link } from "./link.js";
import { toRequest } from "./request.js";
import type {
  ByteChunk,
  BytesOptions,
  CallOptions,
  Cause,
  Chunk,
  Duration,
  FollowOptions,
  InputAnswer,
  Outcome,
  OutputPage,
  ProcessRecord,
  ReadOptions,
  Samples,
  Screen,
  SendOptions,
  SignalAnswer,
  StopAnswer,
  StopOptions,
  WaitAnswer,
  WaitOptions,
} from "./types.js";

/** Bytes in one chunk of a followed output. */
const CHUNK_BYTES = 256 << 10;
/** Bytes in one request of input: the keeper's queue holds 1 MiB. */
const INPUT_BYTES = 512 << 10;
/** Most that one request of input may wait. */
const DEFAULT_SEND_TIMEOUT = "30s";

export class Process {
  readonly id: string;
  private latest: ProcessRecord;

  /** Made by `Pinfold.start`, `get` and others. */
  constructor(private readonly link: Link, record: ProcessRecord) {
    this.id = record.id;
    this.latest = record;
  }

  /** The record as of the last answer about this process; `refresh` asks for a new one. */
  get record(): ProcessRecord {
    return this.latest;
  }

  /** How it ended; null while it runs, as far as `record` knows. */
  get outcome(): Outcome | null {
    return this.latest.outcome;
  }

  /** Why it ended; null while it runs, as far as `record` knows. */
  get cause(): Cause | null {
    return this.latest.cause;
  }

  /** Ports by the variable that has them. */
  get ports(): Readonly<Record<string, number>> {
    return this.latest.ports ?? {};
  }

  async refresh(options?: CallOptions): Promise<ProcessRecord> {
    this.latest = await this.link.call<ProcessRecord>(this.get(""), ["id", "status"], options);
    return this.latest;
  }

  /** Waits, by default for the exit of the command. Throws `WaitTimeout` or, for other conditions, `EndedBeforeError`. */
  async wait(options: WaitOptions = {}): Promise<WaitAnswer> {
    const { timeout, signal, httpTimeout, until = "exit", ...rest } = options;
    const deadline = Deadline.of("timeout", timeout);
    const ask = { ...this.get("/wait"), query: toRequest({ ...rest, until }), wait: { field: "timeout" as const, deadline } };
    for (;;) {
      const answer = await this.link.call<WaitAnswer>(ask, ["reason", "record"], { signal, httpTimeout });
      this.latest = answer.record;
      switch (answer.reason) {
        case "timeout":
          if (deadline.remaining() === 0) throw new WaitTimeout(`${this.title()}: not ${describeWait(until)} within ${timeout}; it keeps running`, [answer.record]);
          break;
        case "cancelled":
          throw new WaitCancelled(`${this.title()}: the wait was ended by a release of its owner's waits; the process keeps running`);
        case "not_ready":
          throw new NotReadyError(`${this.title()}: not ready in time: ${answer.record.ready?.text ?? "its condition was not met"}; it keeps running`, answer.record);
        case "ended_before":
          throw new EndedBeforeError(`${this.title()}: ${answer.record.outcome ? describeOutcome(answer.record.outcome) : "ended"} before it was ${describeWait(until)}`, answer.record);
        default:
          return answer;
      }
    }
  }

  /** Waits until its `ready` condition holds; without one, until its tree listens on its first leased port. Returns the port, if there is one. */
  async waitReady(options: { timeout?: Duration | undefined } & CallOptions = {}): Promise<number | null> {
    const leased = Object.values(this.ports)[0];
    const answer = await this.wait(this.latest.ready || leased === undefined ? { ...options, until: "ready" } : { ...options, until: "port", port: leased });
    return answer.port ?? null;
  }

  /** Output in contiguous chunks: what there is, or with `follow` up to its end. Goes on at its cursor if the daemon is restarted. */
  async *output(options: FollowOptions = {}): AsyncGenerator<Chunk, void, undefined> {
    const { follow = false, cursor, tail, stream, signal, httpTimeout } = options;
    if (cursor !== undefined) checkCursor(cursor);
    const wait = follow ? { wait: { field: "wait" as const, deadline: Deadline.after(Infinity) } } : {};
    let start: { cursor: number } | { tail: string } = tail === undefined ? { cursor: cursor ?? 0 } : { tail };
    for (;;) {
      const query = { ...start, stream, max_bytes: CHUNK_BYTES };
      const page = await this.link.call<OutputPage>({ ...this.get("/output"), query, ...wait }, ["text", "cursor", "next_cursor", "end", "closed"], { signal, httpTimeout });
      const { text, next_cursor: next, gap = null } = page;
      if (text !== "" || gap) yield { cursor: page.cursor, next, text, gap };
      if (next >= page.end && (page.closed || !follow)) return;
      // Bytes of an incomplete character remain: they are for the next call.
      if (!follow && "cursor" in start && next === start.cursor) return;
      start = { cursor: next };
    }
  }

  /** Like `output`, as the bytes that the process wrote. */
  async *bytes(options: BytesOptions = {}): AsyncGenerator<ByteChunk, void, undefined> {
    const { follow = false, cursor = 0, stream, signal, httpTimeout } = options;
    const wait = follow ? { wait: { field: "wait" as const, deadline: Deadline.after(Infinity) } } : {};
    for (let at = checkCursor(cursor); ; ) {
      const query = { cursor: at, stream, max_bytes: CHUNK_BYTES, format: "raw" };
      const page = await this.link.callForBytes({ ...this.get("/output"), query, ...wait }, { signal, httpTimeout });
      if (page.data.length > 0 || page.gap) yield { cursor: page.cursor, next: page.next, data: page.data, gap: page.gap };
      const moved = page.next !== at && page.next < page.end;
      if ((page.closed || !follow) && !moved) return;
      at = page.next;
    }
  }

  /** One page of output: by default all of it in 32 KiB of text, the beginning and the end. */
  async read(options: ReadOptions = {}): Promise<OutputPage> {
    const { signal, httpTimeout, ...rest } = options;
    return this.link.call<OutputPage>({ ...this.get("/output"), query: toRequest(rest) }, ["text", "next_cursor"], { signal, httpTimeout });
  }

  /** Writes to its input, once, however often the connection breaks. Throws `WaitTimeout` if the process does not read it in time. */
  async send(data: string | Uint8Array, options: SendOptions = {}): Promise<InputAnswer> {
    if (typeof data !== "string" && !(data instanceof Uint8Array)) throw new InvalidArgumentError("the input must be a string or a Uint8Array");
    const { keys = [], eof = false, timeout = DEFAULT_SEND_TIMEOUT, signal, httpTimeout } = options;
    const deadline = Deadline.of("timeout", timeout);
    const bytes = Buffer.from(data as Uint8Array);
    for (let from = 0; ; from += INPUT_BYTES) {
      const last = from + INPUT_BYTES >= bytes.length;
      const base64 = bytes.subarray(from, from + INPUT_BYTES).toString("base64");
      const body = { base64, ...(last && { keys, eof }), input_id: crypto.randomUUID() };
      const ask = { ...this.post("/input", body), repeatable: true, wait: { field: "wait" as const, deadline } };
      let answer: InputAnswer;
      do {
        answer = await this.link.call<InputAnswer>(ask, ["record", "complete"], { signal, httpTimeout });
        this.latest = answer.record;
      } while (!answer.complete && deadline.remaining() > 0);
      if (!answer.complete) throw new WaitTimeout(`${this.title()}: did not read its input within ${timeout}; it keeps running`, [answer.record]);
      if (last) return answer;
    }
  }

  /** Ends its whole tree: a signal, then KILL after `grace`. Returns when the tree is empty, with what could not be killed. */
  async stop(options: StopOptions = {}): Promise<StopAnswer> {
    const { stopSignal, grace, signal, httpTimeout } = options;
    const ask = { ...this.post("/stop", toRequest({ signal: stopSignal, grace })), repeatable: true, ...(grace !== undefined && { extraMs: parseDuration("grace", grace) }) };
    return this.remember(await this.link.call<StopAnswer>(ask, ["record", "survivors"], { signal, httpTimeout }));
  }

  /** Sends a signal to every process of its tree. */
  async signal(name: string, options?: CallOptions): Promise<SignalAnswer> {
    return this.remember(await this.link.call<SignalAnswer>(this.post("/signal", { signal: name }), ["record", "reached"], options));
  }

  /** Freezes its tree. */
  async pause(options?: CallOptions): Promise<SignalAnswer> {
    return this.remember(await this.link.call<SignalAnswer>({ ...this.post("/pause", {}), repeatable: true }, ["record"], options));
  }

  async resume(options?: CallOptions): Promise<SignalAnswer> {
    return this.remember(await this.link.call<SignalAnswer>({ ...this.post("/resume", {}), repeatable: true }, ["record"], options));
  }

  /** Ends it, and starts the next process of its restart policy, which is returned. */
  async restart(options?: CallOptions): Promise<Process> {
    return new Process(this.link, await this.link.call<ProcessRecord>(this.post("/restart", {}), ["id", "status"], options));
  }

  /** What its terminal shows. */
  async screen(options?: CallOptions): Promise<Screen> {
    return this.link.call<Screen>(this.get("/screen"), ["lines"], options);
  }

  /** Sets the size of its terminal. */
  async resize(rows: number, cols: number, options?: CallOptions): Promise<Screen> {
    return this.link.call<Screen>({ ...this.post("/resize", { rows, cols }), repeatable: true }, ["lines"], options);
  }

  /** CPU and memory of its tree, sampled once per second while somebody asks. */
  async samples(options: { after?: string | undefined } & CallOptions = {}): Promise<Samples> {
    const { after, signal, httpTimeout } = options;
    return this.link.call<Samples>({ ...this.get("/samples"), query: { after } }, ["id"], { signal, httpTimeout });
  }

  /** Gives it to another owner; by default to the parent of its owner. */
  async handover(purpose: string, options: { to?: string | undefined } & CallOptions = {}): Promise<ProcessRecord> {
    const { to, signal, httpTimeout } = options;
    this.latest = await this.link.call<ProcessRecord>(this.post("/handover", { to, purpose }), ["id", "status"], { signal, httpTimeout });
    return this.latest;
  }

  /** Removes an ended process and its output. */
  async remove(options?: CallOptions): Promise<void> {
    await this.link.call({ method: "DELETE", path: this.path(""), repeatable: false }, [], options);
  }

  private path(rest: string): string {
    return `/v1/processes/${encodeURIComponent(this.id)}${rest}`;
  }

  private get(rest: string) {
    return { method: "GET" as const, path: this.path(rest), repeatable: true };
  }

  private post(rest: string, body: Record<string, unknown>) {
    return { method: "POST" as const, path: this.path(rest), body, repeatable: false };
  }

  private remember<T extends { record: ProcessRecord }>(answer: T): T {
    this.latest = answer.record;
    return answer;
  }

  private title(): string {
    return `${this.id} (\`${this.latest.command}\`)`;
  }
}

function checkCursor(cursor: number): number {
  if (Number.isSafeInteger(cursor) && cursor >= 0) return cursor;
  throw new InvalidArgumentError(`cursor is ${cursor}: it must be a byte offset, 0 or more`);
}

function describeWait(until: NonNullable<WaitOptions["until"]>): string {
  const words = { exit: "over", closed: "closed", finished: "finished", output: "writing", match: "matching", port: "listening", quiet: "quiet", ready: "ready", input: "waiting for input" };
  return words[until];
}
