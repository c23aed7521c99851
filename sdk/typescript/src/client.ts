// What a program does with pinfold: run and start commands, wait for several, read events, act as an owner.

import { Admin } from "./admin.js";
import { Deadline } from "./duration.js";
import { ExitError, InvalidArgumentError, WaitCancelled, WaitTimeout } from "./errors.js";
import { type Identity, Link } from "./link.js";
import { Process } from "./process.js";
import { toRequest, toStartRequest } from "./request.js";
import { Transport, type TransportOptions } from "./transport.js";
import type {
  CallOptions,
  Cause,
  ConsumerEvent,
  ConsumerOptions,
  Duration,
  EndAnswer,
  EventOptions,
  EventPage,
  Health,
  Hit,
  ListOptions,
  Outcome,
  OutputPage,
  PinfoldEvent,
  ProcessList,
  ProcessRecord,
  Range,
  RunOptions,
  SearchOptions,
  SearchPage,
  Started,
  StartOptions,
  WaitManyAnswer,
  WaitManyOptions,
} from "./types.js";

export type Command = string | readonly string[];

/** The longest wait that the daemon accepts in one request. */
const MAX_WAIT_MS = 3_600_000;
/** The daemon's minimum. Without a `wait`, it would not stop the command after it either. */
const MIN_START_WAIT_MS = 10;
/** The longest search that the daemon makes for one request. */
const MAX_SEARCH_MS = 30_000;

/** What became of a command by the time the wait ended. A failure is a result, too. */
export interface RunResult {
  process: Process;
  record: ProcessRecord;
  /** How it ended; null if `wait` passed first, and it keeps running. */
  outcome: Outcome | null;
  cause: Cause | null;
  /** Its output within the budget. */
  text: string;
  /** The bytes that did not fit. */
  omitted: Range | null;
}

/** Requests in the name of one owner, or of the operator. */
export abstract class Client {
  /** Names this client among the readers of a consumer. */
  private readonly reader: string = crypto.randomUUID();

  protected constructor(protected readonly link: Link, private readonly defaults: StartOptions) {}

  /** Runs a command and waits until it exits, or for `wait`. */
  async run(command: Command, options: RunOptions = {}): Promise<RunResult> {
    const { wait, budget, check = false, onWaitTimeout, ...start } = options;
    const deadline = Deadline.of("wait", wait);
    // The daemon stops the command at the end of the request, so that request has the whole wait.
    const maxMs = onWaitTimeout === "stop" ? MAX_WAIT_MS : undefined;
    if (maxMs !== undefined && deadline.remaining() > maxMs) throw new InvalidArgumentError('onWaitTimeout "stop" needs a `wait` of at most 1h: use `timeLimit` for longer');
    const request = { ...this.startRequest(command, start), ...toRequest({ budget, onWaitTimeout }) };
    const started = await this.postStart(request, start, deadline, maxMs);
    const process = new Process(this.link, started);
    let page: OutputPage | null | undefined = started.output_page;
    if (started.outcome === null && deadline.remaining() > 0) {
      await this.waitForExit(process, deadline, start);
      page = null;
    }
    page ??= await process.read({ budget, signal: start.signal, httpTimeout: start.httpTimeout });
    const { record, outcome, cause } = process;
    if (check && outcome === null) throw new WaitTimeout(`\`${record.command}\` did not exit within ${wait}; it keeps running as ${record.id}`, [record]);
    if (check && outcome && !(outcome.kind === "exited" && outcome.code === 0)) throw new ExitError(outcome, record, page.text);
    return { process, record, outcome, cause, text: page.text, omitted: page.omitted ?? null };
  }

  /** Starts a command and returns once it runs. */
  async start(command: Command, options: StartOptions = {}): Promise<Process> {
    return new Process(this.link, await this.postStart(this.startRequest(command, options), options, null));
  }

  /** The process with this id, name or prefix of an id. */
  async get(id: string, options?: CallOptions): Promise<Process> {
    const ask = { method: "GET" as const, path: `/v1/processes/${encodeURIComponent(id)}`, repeatable: true };
    return new Process(this.link, await this.link.call<ProcessRecord>(ask, ["id", "status"], options));
  }

  /** Processes, live ones first, then newest first. `limit` is the size of a page, not of the whole. */
  async *list(options: ListOptions = {}): AsyncGenerator<Process, void, undefined> {
    const { signal, httpTimeout, ...filter } = options;
    let page: string | null = null;
    do {
      const ask = { method: "GET" as const, path: "/v1/processes", query: { ...toRequest(filter), page }, repeatable: true };
      const found: ProcessList = await this.link.call<ProcessList>(ask, ["processes", "next"], { signal, httpTimeout });
      for (const record of found.processes) yield new Process(this.link, record);
      page = found.next;
    } while (page !== null);
  }

  /** Waits until one of them has exited, and returns it. */
  async waitAny(processes: readonly Process[], options: WaitManyOptions = {}): Promise<Process> {
    const [first] = await this.waitMany(processes, "any", options);
    return first!;
  }

  /** Waits until all of them have exited. */
  async waitAll(processes: readonly Process[], options: WaitManyOptions = {}): Promise<Process[]> {
    return this.waitMany(processes, "all", options);
  }

  /** What happens to processes, from `after` on, for as long as the loop runs. With `consumer`, each event is given until it is acknowledged. */
  events(options: ConsumerOptions): AsyncGenerator<ConsumerEvent, void, undefined>;
  events(options?: EventOptions): AsyncGenerator<PinfoldEvent, void, undefined>;
  async *events(options: EventOptions & Partial<ConsumerOptions> = {}): AsyncGenerator<PinfoldEvent, void, undefined> {
    const { consumer, reader = this.reader, kinds, signal, httpTimeout, ...filter } = options;
    const call = { signal, httpTimeout };
    // One event at a time is leased to a consumer: the lease then bounds the work on that event alone.
    const mode = consumer === undefined ? {} : { consumer, reader, limit: 1 };
    const query = { ...toRequest(filter), ...mode, kinds: typeof kinds === "object" ? kinds.join() : kinds };
    const ask = { method: "GET" as const, path: "/v1/events", query, repeatable: true };
    let after = filter.after;
    if (after === "latest" && consumer === undefined) {
      // A number, so that no event is missed if the wait has to be repeated.
      after = (await this.link.call<EventPage>(ask, ["next"], call)).next;
    }
    for (;;) {
      const wait = { field: "wait" as const, deadline: Deadline.after(Infinity) };
      const page: EventPage = await this.link.call<EventPage>({ ...ask, query: { ...query, after }, wait }, ["events", "next"], call);
      let truncated = page.truncated ?? false;
      for (const event of page.events) {
        const ack = (options?: CallOptions) => this.ack(consumer!, event.seq, options);
        yield consumer === undefined ? { ...event, truncated } : Object.assign({ ...event, truncated }, { ack });
        truncated = false;
      }
      if (consumer === undefined) after = page.next;
    }
  }

  /**
   * A client that acts as this owner, below the owner of this one. With `await using`, the owner is ended at the end of the block: what
   * was started there is stopped, unless another `lifetime` was given.
   */
  owner(name: string, options: { parent?: string | undefined; ownerGrace?: Duration | undefined } = {}): OwnerClient {
    const parent = options.parent ?? this.link.identity.owner;
    return new OwnerClient(new Link(this.link.transport, { owner: name, parent, ownerGrace: options.ownerGrace }), name);
  }

  /** Lines of output that match, over all processes that the filters leave; newest process first. */
  async *search(pattern: string, options: SearchOptions = {}): AsyncGenerator<Hit, void, undefined> {
    const { signal, httpTimeout, ...filter } = options;
    let page: string | null | undefined = null;
    do {
      const query = { ...toRequest(filter), pattern, page };
      const ask = { method: "GET" as const, path: "/v1/search", query, repeatable: true, extraMs: MAX_SEARCH_MS };
      const found: SearchPage = await this.link.call<SearchPage>(ask, ["hits"], { signal, httpTimeout });
      yield* found.hits;
      page = found.next;
    } while (page);
  }

  /** The daemon itself, and what belongs to no process. */
  get admin(): Admin {
    return new Admin(this.link);
  }

  /** The state of the daemon. */
  async health(options?: CallOptions): Promise<Health> {
    return this.link.call<Health>({ method: "GET", path: "/healthz", repeatable: true }, ["status", "version"], options);
  }

  private startRequest(command: Command, options: StartOptions): Record<string, unknown> {
    return toStartRequest(command, { ...this.defaults, ...options }, this.link.transport.isLocal);
  }

  private postStart(body: Record<string, unknown>, options: CallOptions, deadline: Deadline | null, maxMs?: number): Promise<Started> {
    const wait = deadline && { wait: { field: "wait" as const, deadline, minMs: MIN_START_WAIT_MS, ...(maxMs !== undefined && { maxMs }) } };
    // Its idempotency key makes it repeatable.
    const ask = { method: "POST" as const, path: "/v1/processes", body, repeatable: true, ...wait };
    return this.link.call<Started>(ask, ["id", "status", "outcome"], options);
  }

  private async waitForExit(process: Process, deadline: Deadline, { signal, httpTimeout }: CallOptions): Promise<void> {
    const remaining = deadline.remaining();
    try {
      await process.wait({ ...(remaining !== Infinity && { timeout: `${Math.ceil(remaining)}ms` }), signal, httpTimeout });
    } catch (error) {
      if (!(error instanceof WaitTimeout)) throw error;
    }
  }

  private async waitMany(processes: readonly Process[], mode: "any" | "all", options: WaitManyOptions): Promise<Process[]> {
    const { timeout, until = "exit", signal, httpTimeout } = options;
    if (processes.length === 0) throw new InvalidArgumentError("no processes to wait for: pass at least one");
    const deadline = Deadline.of("timeout", timeout);
    const body = { ids: processes.map(({ id }) => id), mode, until };
    const ask = { method: "POST" as const, path: "/v1/wait", body, repeatable: true, wait: { field: "timeout" as const, deadline } };
    for (;;) {
      const { reason, done, pending } = await this.link.call<WaitManyAnswer>(ask, ["reason", "done", "pending"], { signal, httpTimeout });
      if (reason === "cancelled") throw new WaitCancelled("the wait was ended by a release of its owner's waits; the processes keep running");
      if (reason !== "timeout") return done.map((record) => new Process(this.link, record));
      if (deadline.remaining() === 0) throw new WaitTimeout(`${pending.length} of ${processes.length} processes did not end within ${timeout}; they keep running`, pending);
    }
  }

  private async ack(consumer: string, through: number, options?: CallOptions): Promise<void> {
    const ask = { method: "POST" as const, path: `/v1/consumers/${encodeURIComponent(consumer)}/ack`, body: { through }, repeatable: true };
    await this.link.call(ask, [], options);
  }
}

export interface PinfoldOptions extends TransportOptions, Identity {}

/** A connection to the daemon. It starts the daemon if none runs; closing it ends no process. */
export class Pinfold extends Client implements AsyncDisposable {
  constructor(options: PinfoldOptions = {}) {
    const { owner, parent, ownerGrace, ...transport } = options;
    super(new Link(new Transport(transport), { owner, parent, ownerGrace }), {});
  }

  /** Closes all connections. Calls under way, and later ones, throw a `ClosedError`. */
  async close(): Promise<void> {
    this.link.transport.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** A client that acts as an owner, and ends it. */
export class OwnerClient extends Client implements AsyncDisposable {
  constructor(link: Link, readonly name: string) {
    super(link, { lifetime: "owner" });
  }

  /** Ends the owner: each of its processes is stopped, kept or handed over, as its `lifetime` says. */
  async end(options?: CallOptions): Promise<EndAnswer> {
    const ask = { method: "POST" as const, path: `/v1/owners/${encodeURIComponent(this.name)}/end`, body: {}, repeatable: true };
    return this.link.call<EndAnswer>(ask, ["stopped", "survivors"], options);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.end();
  }
}
