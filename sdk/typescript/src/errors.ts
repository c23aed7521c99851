// Errors: one class for each error code of the API, and those that arise on this side. A command that fails is not an error,
// unless `check` asks for it (ExitError).

import type { ApiErrorBody, ErrorCode, Outcome, ProcessRecord } from "./types.js";

/** Base class of everything that this package throws, apart from the reason of an AbortSignal. */
export class PinfoldError extends Error {
  override get name(): string {
    return this.constructor.name;
  }
}

/** An argument that cannot be sent to the daemon. */
export class InvalidArgumentError extends PinfoldError {}
/** The pinfold program, which runs the daemon, is not installed. */
export class NotInstalledError extends PinfoldError {}
/** The pinfold program could not start the daemon. */
export class DaemonStartError extends PinfoldError {}
/** The client was closed. Processes are not affected. */
export class ClosedError extends PinfoldError {}
/** No connection to the daemon could be opened. Nothing was done. */
export class UnreachableError extends PinfoldError {}
/** The connection broke after the request was sent, and repeating it is not safe or did not help: it may have been carried out. */
export class ConnectionLostError extends PinfoldError {}
/** The daemon did not answer within `httpTimeout`. The request may have been carried out. */
export class HttpTimeoutError extends PinfoldError {}
/** The answer is not one of this API, or lacks a field: another program answers there, or a daemon of another version. */
export class ProtocolError extends PinfoldError {}

/** A wait reached its timeout. The process keeps running. */
export class WaitTimeout extends PinfoldError {
  constructor(message: string, readonly records: readonly ProcessRecord[]) {
    super(message);
  }
}

/** A wait ended because the daemon was told to release the waits of this owner. The process keeps running. */
export class WaitCancelled extends PinfoldError {}

/** The process ended before the condition of a wait was met. */
export class EndedBeforeError extends PinfoldError {
  constructor(message: string, readonly record: ProcessRecord) {
    super(message);
  }
}

/** The process was not ready within the timeout of its `ready` condition. It keeps running. */
export class NotReadyError extends PinfoldError {
  constructor(message: string, readonly record: ProcessRecord) {
    super(message);
  }
}

/** `check` was set, and the command did not exit with code 0. */
export class ExitError extends PinfoldError {
  constructor(readonly outcome: Outcome, readonly record: ProcessRecord, readonly text: string) {
    super(`\`${record.command}\` ${describeOutcome(outcome)}`);
  }
}

/** What the daemon refused, and its advice. Each code has a class of its own; a code that this version does not know has this one. */
export class ApiError extends PinfoldError {
  readonly code: ErrorCode;
  /** What went wrong and what to do, in the daemon's words. */
  readonly advice: string;
  /** The process that the error is about. */
  readonly processId: string | null;

  constructor(body: ApiErrorBody, readonly status: number, readonly retryAfterMs: number | null) {
    super(body.message);
    this.code = body.code;
    this.advice = body.message;
    this.processId = body.id ?? null;
  }
}

export class InvalidJsonError extends ApiError {}
export class BodyTooLargeError extends ApiError {}
export class InvalidRequestError extends ApiError {}
export class NoSuchRouteError extends ApiError {}
export class MethodNotAllowedError extends ApiError {}
export class NotFoundError extends ApiError {}
export class AmbiguousIdError extends ApiError {}
export class BadCwdError extends ApiError {}
export class NoProgramError extends ApiError {}
export class FailedToStartError extends ApiError {}
export class ResourceShortageError extends ApiError {}
export class BadPatternError extends ApiError {}
export class BadSignalError extends ApiError {}
export class AlreadyOverError extends ApiError {}
export class StillRunningError extends ApiError {}
export class NoStdinError extends ApiError {}
export class NoTerminalError extends ApiError {}
export class StdinClosedError extends ApiError {}
export class KeyReusedError extends ApiError {}
export class AgentBusyError extends ApiError {}
export class LimitReachedError extends ApiError {}
export class ForbiddenError extends ApiError {}
export class UnauthorizedError extends ApiError {}
export class DamagedError extends ApiError {}
export class StoreUnwritableError extends ApiError {}
export class KeeperSilentError extends ApiError {}
export class RecoveringError extends ApiError {}
export class ShuttingDownError extends ApiError {}
export class InternalError extends ApiError {}

// The type makes tsc fail when the API gets a code without a class.
const CLASSES: Record<ErrorCode, typeof ApiError> = {
  invalid_json: InvalidJsonError,
  body_too_large: BodyTooLargeError,
  invalid_request: InvalidRequestError,
  no_such_route: NoSuchRouteError,
  method_not_allowed: MethodNotAllowedError,
  not_found: NotFoundError,
  ambiguous_id: AmbiguousIdError,
  bad_cwd: BadCwdError,
  no_program: NoProgramError,
  failed_to_start: FailedToStartError,
  resource_shortage: ResourceShortageError,
  bad_pattern: BadPatternError,
  bad_signal: BadSignalError,
  already_over: AlreadyOverError,
  still_running: StillRunningError,
  no_stdin: NoStdinError,
  no_terminal: NoTerminalError,
  stdin_closed: StdinClosedError,
  key_reused: KeyReusedError,
  agent_busy: AgentBusyError,
  limit_reached: LimitReachedError,
  forbidden: ForbiddenError,
  unauthorized: UnauthorizedError,
  damaged: DamagedError,
  store_unwritable: StoreUnwritableError,
  keeper_silent: KeeperSilentError,
  recovering: RecoveringError,
  shutting_down: ShuttingDownError,
  internal: InternalError,
};

/** The error for a response with this body. */
export function parseApiError(body: ApiErrorBody, status: number, retryAfterMs: number | null): ApiError {
  const known = Object.hasOwn(CLASSES, body.code) ? CLASSES[body.code] : ApiError;
  return new known(body, status, retryAfterMs);
}

/** An outcome in a few words, as the end of a sentence about the command. */
export function describeOutcome(outcome: Outcome): string {
  switch (outcome.kind) {
    case "exited":
      return `exited with code ${outcome.code}`;
    case "signaled":
      return `was ended by signal ${outcome.name}`;
    case "failed_to_start":
      return `failed to start (${outcome.step}): ${outcome.error}`;
    case "lost":
      return `was lost: ${outcome.evidence}`;
  }
}
