// Names for the generated types of the HTTP API (api.ts), and the options of this package derived from them: the fields of a
// request in camelCase, durations as text. Records, pages and events are passed on as the daemon sends them.

import type { components, operations } from "./api.js";

type Schemas = components["schemas"];

export type ApiErrorBody = Schemas["ApiError"];
export type Cause = Schemas["Cause"];
export type Consumer = Schemas["Consumer"];
export type EndAnswer = Schemas["EndAnswer"];
export type ErrorCode = Schemas["ErrorCode"];
export type Event = Schemas["Event"];
export type EventKind = Schemas["EventKind"];
export type EventPage = Schemas["EventPage"];
export type Health = Schemas["Health"];
export type InputAnswer = Schemas["InputAnswer"];
/** How the leader ended, as the kernel reported it: `exited`, `signaled`, `failed_to_start` or `lost`, by `kind`. */
export type Outcome = Schemas["Outcome"];
export type OutputPage = Schemas["OutputPage"];
export type ProcessList = Schemas["ProcessList"];
export type ProcessRecord = Schemas["Record"];
export type Range = Schemas["Range"];
export type Screen = Schemas["Screen"];
export type SignalAnswer = Schemas["SignalAnswer"];
export type Started = Schemas["Started"];
export type Status = Schemas["Status"];
export type StopAnswer = Schemas["StopAnswer"];
export type Survivor = Schemas["Survivor"];
export type WaitAnswer = Schemas["WaitAnswer"];
export type WaitManyAnswer = Schemas["WaitManyAnswer"];
export type WaitReason = Schemas["WaitReason"];

export type DoctorAnswer = Schemas["DoctorAnswer"];
export type GcAnswer = Schemas["GcAnswer"];
export type Hit = Schemas["Hit"];
export type Inbox = Schemas["Inbox"];
export type Owner = Schemas["Owner"];
export type Samples = Schemas["Samples"];
export type SearchPage = Schemas["SearchPage"];
export type SeenAnswer = Schemas["SeenAnswer"];
export type ShutdownAnswer = Schemas["ShutdownAnswer"];
export type Token = Schemas["Token"];
export type TokenAnswer = Schemas["TokenAnswer"];
export type ReleaseAnswer = Schemas["ReleaseAnswer"];

/** A duration with its unit, such as `500ms`, `30s` or `1h30m`. A bare number is refused: is 5000 milliseconds or seconds? */
export type Duration = string;
/** A number of bytes, or text such as `64k` or `8MiB`. */
export type Size = number | string;

/** Options of every method that talks to the daemon. */
export interface CallOptions {
  /** Abort to stop waiting for the answer. The process is not affected. */
  signal?: AbortSignal | undefined;
  /** How long the daemon may take to answer, on top of the time it was asked to wait. */
  httpTimeout?: Duration | undefined;
}

type CamelCase<Name extends string> = Name extends `${infer Head}_${infer Tail}` ? `${Head}${Capitalize<CamelCase<Tail>>}` : Name;
/** `Span` of the API (a number of seconds, or text) becomes text alone. */
type Durations = "grace" | "time_limit" | "idle_limit" | "cpu_time_limit" | "owner_grace" | "cooldown" | "heartbeat" | "timeout" | "quiet" | "lease";
type Options<Request> = {
  [Name in keyof Request & string as CamelCase<Name>]?: (Name extends Durations ? Duration : NonNullable<Request[Name]>) | undefined;
};

type StartRequest = Schemas["StartRequest"];
/** Fields of a start that have a form of their own here. */
type OwnForm = "command" | "argv" | "owner" | "parent" | "env" | "inherit_env" | "ports" | "notify" | "ready" | "idempotency_key" | "wait" | "on_wait_timeout" | "budget";

export interface StartOptions extends Options<Omit<StartRequest, OwnForm>>, CallOptions {
  /** Variables to set, on top of those that `inheritEnv` gives; null unsets one. */
  env?: Readonly<Record<string, string | null | undefined>> | undefined;
  /** By default a start over the socket has the environment of this program, over TCP that of the daemon. True: that of the daemon. False: none. */
  inheritEnv?: boolean | undefined;
  /** Names of variables that get a leased port each, or a record of name to `"lease"` or a port number. */
  ports?: readonly string[] | Readonly<Record<string, "lease" | number>> | undefined;
  notify?: Options<Schemas["Notify"]> | undefined;
  ready?: Options<Schemas["Ready"]> | undefined;
  /** An idempotency key: two starts with the same owner and key start one process. By default each call has a new one. */
  key?: string | undefined;
}

export interface RunOptions extends StartOptions {
  /** How long to wait for the command to exit; it keeps running after that. By default as long as it takes. */
  wait?: Duration | undefined;
  /** Maximum bytes of output text in the result: the beginning and the end are kept. Default 32 KiB. */
  budget?: Size | undefined;
  /** What to do with it after `wait` (at most 1h): `keep` it running (default) or `stop` it. */
  onWaitTimeout?: "keep" | "stop" | undefined;
  /** Throw an `ExitError` unless the command exits with code 0. */
  check?: boolean | undefined;
}

type Query<Name extends keyof operations> = NonNullable<operations[Name]["parameters"]["query"]>;

export interface ListOptions extends Options<Omit<Query<"list">, "page">>, CallOptions {}
export interface ReadOptions extends Options<Omit<Query<"output">, "format" | "wait" | "until" | "follow" | "max_bytes" | "budget">>, CallOptions {
  /** At most this many bytes from the cursor on, contiguous. */
  maxBytes?: Size | undefined;
  /** The whole range in at most this many bytes of text: the beginning, the number of omitted bytes, the end. */
  budget?: Size | undefined;
}

export interface FollowOptions extends CallOptions {
  /** Go on until the output is complete, instead of ending at what there is. */
  follow?: boolean | undefined;
  /** Start at this byte. Default 0. */
  cursor?: number | undefined;
  /** Start with the last bytes (`4k`) or lines (`20 lines`) instead. */
  tail?: string | undefined;
  /** Only this stream of a process with separate streams. */
  stream?: "stdout" | "stderr" | undefined;
}

/** A contiguous piece of output. */
export interface Chunk {
  /** Cursor of the first byte of `text`. */
  cursor: number;
  /** Cursor of the next byte: pass it as `cursor` to read on from there. */
  next: number;
  text: string;
  /** Bytes right before `text` that are no longer kept. */
  gap: Range | null;
}

/** A contiguous piece of output, as the process wrote it. */
export interface ByteChunk {
  /** Cursor of the first byte of `data`. */
  cursor: number;
  /** Cursor of the next byte: pass it as `cursor` to read on from there. */
  next: number;
  data: Uint8Array;
  /** Bytes right before `data` that are no longer kept. */
  gap: Range | null;
}

export interface BytesOptions extends Omit<FollowOptions, "tail"> {}

export interface WaitOptions extends Options<Omit<Query<"wait">, "until">>, CallOptions {
  /** `exit` by default. */
  until?: "exit" | "closed" | "finished" | "output" | "match" | "port" | "quiet" | "ready" | "input" | undefined;
}

export interface SearchOptions extends Options<Omit<Query<"search">, "pattern" | "page" | "timeout">>, CallOptions {}

export interface WaitManyOptions extends CallOptions {
  /** Throw a `WaitTimeout` after this time. By default wait as long as it takes. */
  timeout?: Duration | undefined;
  until?: "exit" | "closed" | "finished" | undefined;
}

export interface StopOptions extends CallOptions {
  /** The first signal. Default: the process's `stopSignal`. */
  stopSignal?: string | undefined;
  /** Time between the first signal and KILL. Default: the process's `grace`; `0s` kills at once. */
  grace?: Duration | undefined;
}

export interface SendOptions extends CallOptions {
  /** Keys by name, sent after the text: `enter`, `ctrl+c`, `up`, … */
  keys?: readonly string[] | undefined;
  /** Close the input after that. */
  eof?: boolean | undefined;
  /** How long to wait until the process has read enough to make room. Default 30s. */
  timeout?: Duration | undefined;
}

export interface EventOptions extends CallOptions {
  /** Only events with a higher number; `latest` for future ones only. Default 0, and for a known consumer its own cursor. */
  after?: number | "latest" | undefined;
  /** Only these kinds; `announce` for those that the owner is notified of. */
  kinds?: readonly EventKind[] | "announce" | undefined;
  /** Only events of this process. */
  process?: string | undefined;
}

export interface ConsumerOptions extends EventOptions {
  /** A name under which the daemon remembers what was acknowledged. */
  consumer: string;
  /** How long an event is kept from other readers of this consumer before it is given again. Default 30s. */
  lease?: Duration | undefined;
  /** The name of this reader, if the consumer has several. By default each `Pinfold` is a reader of its own. */
  reader?: string | undefined;
}

export interface PinfoldEvent extends Event {
  /** True if the event log no longer has some of the events before this one. */
  truncated: boolean;
}

export interface ConsumerEvent extends PinfoldEvent {
  /** Acknowledges this event and all before it. What is not acknowledged is given again. */
  ack(options?: CallOptions): Promise<void>;
}
