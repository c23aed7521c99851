// HTTP over the daemon's socket or TCP: one request and its answer, its time limit, and when it is sent again.
//
// A request is sent again only if it was not sent before, if the daemon answered that nothing was done, or if repeating it is safe
// (`repeatable`). Bounds: MAX_SLICE_MS of waiting in one request, so that a daemon that does not answer is noticed; MAX_BODY bytes of
// an answer; `httpTimeout` for all attempts after the first failure.

import http from "node:http";
import https from "node:https";
import { setTimeout as sleep } from "node:timers/promises";

import { LocalDaemon, shortPath } from "./daemon.js";
import { Deadline, parseDuration } from "./duration.js";
import {
  ClosedError,
  ConnectionLostError,
  HttpTimeoutError,
  InvalidArgumentError,
  parseApiError,
  ProtocolError,
  RecoveringError,
  ShuttingDownError,
  UnreachableError,
} from "./errors.js";
import type { ApiErrorBody, CallOptions, Duration, Range } from "./types.js";

const MAX_SLICE_MS = 60_000;
const MAX_BODY = 64 << 20;
/** The pause between attempts doubles from the first to the last. */
const FIRST_PAUSE_MS = 5;
const LAST_PAUSE_MS = 250;
/** Idle connections are closed before the daemon closes them. */
const IDLE_TIMEOUT_MS = 15_000;
const DEFAULT_HTTP_TIMEOUT = "30s";

export interface TransportOptions {
  /** The state directory of the daemon. Default: PINFOLD_HOME, or `pinfold` in the user's state directory. */
  home?: string | undefined;
  /** The pinfold program that starts the daemon. Default: PINFOLD_BINARY, or `pinfold` in PATH. */
  binary?: string | undefined;
  /** False: never start a daemon. */
  autostart?: boolean | undefined;
  /** The address of a daemon that listens on TCP, instead of the socket. */
  url?: string | URL | undefined;
  /** A token for `url`. */
  token?: string | undefined;
  /** How long the daemon may take to answer, on top of the time it was asked to wait. Default 30s. */
  httpTimeout?: Duration | undefined;
}

/** One request. */
export interface Ask {
  method: "GET" | "POST" | "DELETE";
  path: string;
  query?: Readonly<Record<string, unknown>>;
  body?: Readonly<Record<string, unknown>>;
  /** Whether doing it twice is the same as doing it once. */
  repeatable: boolean;
  /** The field, in the query of a GET or in the body, that says how long the daemon may wait; and until when. */
  wait?: { field: "wait" | "timeout"; deadline: Deadline; minMs?: number; maxMs?: number };
  /** Time that the daemon needs for other reasons, such as the grace of a stop. */
  extraMs?: number;
}

interface Answer {
  status: number;
  headers: http.IncomingHttpHeaders;
  body: Buffer;
}

/** Bytes of output, with what the daemon says about them in headers. */
export interface BytesAnswer {
  data: Buffer;
  cursor: number;
  next: number;
  end: number;
  gap: Range | null;
  closed: boolean;
}

export class Transport {
  readonly isLocal: boolean;
  private readonly daemon: LocalDaemon | null;
  private readonly autostart: boolean;
  private readonly url: URL | null;
  private readonly httpTimeoutMs: number;
  private readonly headers: Record<string, string>;
  private readonly protocol: typeof http | typeof https;
  private readonly agent: http.Agent;
  /** Once the daemon has answered, refused connections mean a restart and are tried again. */
  private answered = false;
  private closed = false;
  /** Functions that end the requests under way. */
  private readonly underWay = new Set<(reason: Error) => void>();

  constructor(options: TransportOptions) {
    this.httpTimeoutMs = parseDuration("httpTimeout", options.httpTimeout ?? DEFAULT_HTTP_TIMEOUT);
    this.url = options.url === undefined ? null : parseUrl(options.url);
    this.isLocal = this.url === null;
    if (this.isLocal && options.token !== undefined) throw new InvalidArgumentError("a token is for TCP: give `url` too, or leave the token out");
    this.daemon = this.isLocal ? new LocalDaemon(options.home, options.binary) : null;
    this.autostart = options.autostart ?? true;
    this.protocol = this.url?.protocol === "https:" ? https : http;
    // Idle connections do not keep the program alive: node does not count them.
    this.agent = new this.protocol.Agent({ keepAlive: true, maxFreeSockets: 4, timeout: IDLE_TIMEOUT_MS });
    this.headers = { accept: "application/json", host: this.url?.host ?? "localhost" };
    if (options.token !== undefined) this.headers["authorization"] = `Bearer ${options.token}`;
  }

  /** Ends what is under way with a `ClosedError`, and closes all connections. */
  close(): void {
    this.closed = true;
    for (const stop of this.underWay) stop(closedError());
    this.agent.destroy();
  }

  /** Sends a request, and returns its answer, which must have the fields `needs`. */
  call<T extends object>(ask: Ask, owner: Record<string, string>, needs: readonly (keyof T & string)[], options?: CallOptions): Promise<T> {
    return this.send(ask, owner, (answer) => parseAnswer<T>(ask, answer, needs), options);
  }

  /** Sends a request that is answered with bytes. */
  callForBytes(ask: Ask, owner: Record<string, string>, options?: CallOptions): Promise<BytesAnswer> {
    return this.send(ask, owner, (answer) => parseBytes(ask, answer), options);
  }

  /** Sends a request, again where that is safe. */
  private async send<T>(ask: Ask, owner: Record<string, string>, parse: (answer: Answer) => T, options: CallOptions = {}): Promise<T> {
    const httpTimeoutMs = options.httpTimeout === undefined ? this.httpTimeoutMs : parseDuration("httpTimeout", options.httpTimeout);
    let giveUp: Deadline | null = null;
    for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(2 * pause, LAST_PAUSE_MS)) {
      options.signal?.throwIfAborted();
      if (this.closed) throw closedError();
      try {
        return parse(await this.attempt(ask, owner, httpTimeoutMs, options.signal));
      } catch (error) {
        giveUp ??= Deadline.after(httpTimeoutMs);
        if (!this.mayRepeat(ask, error) || giveUp.remaining() === 0) throw error;
        if (error instanceof UnreachableError && this.daemon && this.autostart) await abortable(this.daemon.start(), options.signal);
        const retryAfterMs = error instanceof RecoveringError ? error.retryAfterMs : null;
        await sleep(Math.min(retryAfterMs ?? pause, giveUp.remaining()), undefined, { signal: options.signal }).catch(() => {});
      }
    }
  }

  private mayRepeat(ask: Ask, error: unknown): boolean {
    if (error instanceof UnreachableError) return isNotRunning(error) && (this.answered || (this.isLocal && this.autostart));
    if (error instanceof RecoveringError || error instanceof ShuttingDownError) return true;
    return error instanceof ConnectionLostError && ask.repeatable;
  }

  private attempt(ask: Ask, owner: Record<string, string>, httpTimeoutMs: number, signal: AbortSignal | undefined): Promise<Answer> {
    const { target, body, waitMs } = encode(ask);
    const limitMs = httpTimeoutMs + waitMs + (ask.extraMs ?? 0);
    return new Promise((done, fail) => {
      const { path: socketPath, release } = this.daemon ? this.openSocketPath() : { path: undefined, release: () => {} };
      const headers: Record<string, string | number> = { ...this.headers, ...owner };
      if (body !== undefined) Object.assign(headers, { "content-type": "application/json", "content-length": Buffer.byteLength(body) });
      const request = this.protocol.request({
        ...(this.url ? { hostname: this.url.hostname.replace(/^\[|\]$/g, ""), port: this.url.port } : { socketPath }),
        method: ask.method,
        path: this.url ? this.url.pathname.replace(/\/$/, "") + target : target,
        headers,
        // A pooled connection may be closed by the daemon at any moment: it is not for what must not be sent twice.
        agent: ask.repeatable ? this.agent : false,
      });
      let connected = request.reusedSocket;
      const finish = () => {
        this.underWay.delete(stop);
        clearTimeout(timer);
        release();
        signal?.removeEventListener("abort", abort);
      };
      const stop = (reason: unknown) => {
        finish();
        fail(reason);
        request.destroy();
      };
      const abort = () => stop(signal?.reason);
      const timer = setTimeout(() => stop(new HttpTimeoutError(`no answer to ${ask.method} ${ask.path} within ${limitMs / 1000}s: see \`pinfold daemon status\`, or raise httpTimeout`)), limitMs);
      signal?.addEventListener("abort", abort, { once: true });
      this.underWay.add(stop);

      request.once("socket", (socket) => {
        connected = !socket.connecting;
        if (connected) return release();
        socket.once("connect", () => {
          connected = true;
          release();
        });
      });
      request.once("error", (error: NodeJS.ErrnoException) => stop(connected ? this.connectionLost(ask, error) : this.unreachable(error)));
      request.once("response", (response) => {
        const pieces: Buffer[] = [];
        let size = 0;
        response.on("data", (piece: Buffer) => {
          pieces.push(piece);
          size += piece.length;
          if (size > MAX_BODY) stop(new ProtocolError(`the answer to ${ask.method} ${ask.path} is larger than ${MAX_BODY >> 20} MiB`));
        });
        response.once("error", (error) => stop(this.connectionLost(ask, error)));
        response.once("close", () => {
          if (!response.complete) stop(this.connectionLost(ask, new Error("it ended in the middle of the answer")));
        });
        response.once("end", () => {
          if (!response.complete) return;
          finish();
          this.answered = true;
          done({ status: response.statusCode ?? 0, headers: response.headers, body: Buffer.concat(pieces) });
        });
      });
      request.end(body);
    });
  }

  private openSocketPath(): { path: string; release: () => void } {
    const { socket } = this.daemon!;
    try {
      return shortPath(socket);
    } catch (error) {
      throw this.unreachable(error as NodeJS.ErrnoException);
    }
  }

  private unreachable(error: NodeJS.ErrnoException): UnreachableError {
    return new UnreachableError(`cannot reach the daemon at ${this.place()}: ${error.message}${isNotRunning({ cause: error }) ? ": start it with `pinfold daemon start`" : ""}`, { cause: error });
  }

  private connectionLost(ask: Ask, error: Error): ConnectionLostError {
    const consequence = ask.repeatable ? "" : "; it may have been carried out, look before you repeat it";
    return new ConnectionLostError(`the connection to the daemon at ${this.place()} broke during ${ask.method} ${ask.path}: ${error.message}${consequence}`, { cause: error });
  }

  private place(): string {
    return this.url?.origin ?? this.daemon?.socket ?? "";
  }
}

/** Whether the error means that no daemon listens there, that it was just killed, or that too many connect to it at once. */
function isNotRunning(error: { cause?: unknown }): boolean {
  const code = (error.cause as NodeJS.ErrnoException | undefined)?.code;
  return code !== undefined && ["ENOENT", "ECONNREFUSED", "ECONNRESET", "ENOTDIR", "EAGAIN"].includes(code);
}

function closedError(): ClosedError {
  return new ClosedError("this client was closed: make another one");
}

function parseUrl(text: string | URL): URL {
  const url = URL.canParse(String(text)) ? new URL(text) : null;
  if (url?.protocol === "http:" || url?.protocol === "https:") return url;
  throw new InvalidArgumentError(`url is \`${text}\`, which is not an address of a daemon: write http://127.0.0.1:PORT`);
}

/** Path with query, body, and how long the daemon will wait. */
function encode(ask: Ask): { target: string; body: string | undefined; waitMs: number } {
  const waitMs = ask.wait ? Math.max(Math.min(ask.wait.deadline.remaining(), ask.wait.maxMs ?? MAX_SLICE_MS), ask.wait.minMs ?? 0) : 0;
  const timed = ask.wait ? { [ask.wait.field]: `${Math.ceil(waitMs)}ms` } : {};
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries({ ...ask.query, ...(ask.method === "GET" ? timed : {}) })) {
    for (const one of Array.isArray(value) ? value : [value]) if (one !== undefined && one !== null) query.append(name, String(one));
  }
  const text = query.toString();
  const body = ask.method === "POST" ? JSON.stringify({ ...ask.body, ...timed }) : undefined;
  return { target: text ? `${ask.path}?${text}` : ask.path, body, waitMs };
}

function parseAnswer<T extends object>(ask: Ask, answer: Answer, needs: readonly (keyof T & string)[]): T {
  const value = parseJson(answer.body);
  refuseError(ask, answer, value);
  if (has<T>(value, needs)) return value;
  if (value === undefined) throw new ProtocolError(`the answer to ${ask.method} ${ask.path} is not JSON: is a pinfold daemon listening there?`);
  throw olderDaemon(ask, needs.filter((name) => !has(value, [name])));
}

function parseBytes(ask: Ask, answer: Answer): BytesAnswer {
  if (answer.status >= 300) refuseError(ask, answer, parseJson(answer.body));
  const header = (name: string) => String(answer.headers[`pinfold-${name}`] ?? "");
  const missing = ["cursor", "next-cursor", "end"].filter((name) => !/^\d+$/.test(header(name)));
  if (missing.length > 0) throw olderDaemon(ask, missing.map((name) => `pinfold-${name}`));
  const gap = header("gap-from") === "" ? null : { from: Number(header("gap-from")), to: Number(header("gap-to")) };
  const closed = header("closed") === "true" || ["finished", "lost"].includes(header("status"));
  return { data: answer.body, cursor: Number(header("cursor")), next: Number(header("next-cursor")), end: Number(header("end")), gap, closed };
}

/** Throws what an answer that is not a success means. */
function refuseError(ask: Ask, { status, headers }: Answer, value: unknown): void {
  if (status >= 400 && has<ApiErrorBody>(value, ["code", "message"])) throw parseApiError(value, status, retryAfterMs(headers["retry-after"]));
  if (status >= 200 && status < 300) return;
  throw new ProtocolError(`the answer to ${ask.method} ${ask.path} has the unexpected status ${status}: is a pinfold daemon listening there?`);
}

function parseJson(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString());
  } catch {
    return undefined;
  }
}

function olderDaemon(ask: Ask, missing: readonly string[]): ProtocolError {
  return new ProtocolError(
    `the answer to ${ask.method} ${ask.path} lacks \`${missing.join("`, `")}\`: the daemon is older than this package; after \`pinfold daemon stop\`, which ends no process, the installed one is started`,
  );
}

function has<T extends object>(value: unknown, names: readonly (keyof T & string)[]): value is T {
  return typeof value === "object" && value !== null && !Array.isArray(value) && names.every((name) => name in value);
}

function retryAfterMs(header: string | undefined): number | null {
  const seconds = Number(header);
  return header !== undefined && Number.isFinite(seconds) ? seconds * 1000 : null;
}

/** The result of the work, or the reason of the signal if that comes first; the work goes on then. */
async function abortable<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return work;
  let abort = () => {};
  const aborted = new Promise<never>((_, fail) => {
    abort = () => fail(signal.reason);
    signal.addEventListener("abort", abort, { once: true });
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}
