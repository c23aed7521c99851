// The daemon itself: owners, readers of events, tokens, the inbox, maintenance. `pf.admin` in programs.

import { parseDuration } from "./duration.js";
import type { Link } from "./link.js";
import { toRequest } from "./request.js";
import type { CallOptions, Consumer, DoctorAnswer, Duration, EndAnswer, GcAnswer, Inbox, Owner, ReleaseAnswer, SeenAnswer, ShutdownAnswer, Token, TokenAnswer } from "./types.js";

export class Admin {
  constructor(private readonly link: Link) {}

  /** The owners in view. */
  async owners(options?: CallOptions): Promise<Owner[]> {
    return (await this.get<{ owners: Owner[] }>("/v1/owners", ["owners"], {}, options)).owners;
  }

  /** Ends an owner and its descendants: each of their processes is stopped, kept or handed over, as its `lifetime` says. */
  async endOwner(name: string, options: { grace?: Duration | undefined } & CallOptions = {}): Promise<EndAnswer> {
    const { grace, ...call } = options;
    const extraMs = grace === undefined ? 0 : parseDuration("grace", grace);
    return this.post<EndAnswer>(`/v1/owners/${encodeURIComponent(name)}/end`, ["stopped", "survivors"], { grace }, { repeatable: true, extraMs }, call);
  }

  /** Ends the open waits of an owner; its processes run on. */
  async releaseOwner(name: string, options?: CallOptions): Promise<ReleaseAnswer> {
    return this.post<ReleaseAnswer>(`/v1/owners/${encodeURIComponent(name)}/release`, ["released"], {}, { repeatable: true }, options);
  }

  /** The named readers of events. */
  async consumers(options?: CallOptions): Promise<Consumer[]> {
    return (await this.get<{ consumers: Consumer[] }>("/v1/consumers", ["consumers"], {}, options)).consumers;
  }

  /** Removes a named reader of events and its cursor. */
  async forgetConsumer(name: string, options?: CallOptions): Promise<Consumer> {
    return this.link.call<Consumer>({ method: "DELETE", path: `/v1/consumers/${encodeURIComponent(name)}`, repeatable: false }, ["name"], options);
  }

  /** What needs a person. */
  async inbox(options: { owner?: string | undefined; limit?: number | undefined } & CallOptions = {}): Promise<Inbox> {
    const { owner, limit, ...call } = options;
    return this.get<Inbox>("/v1/inbox", ["failed"], { owner, limit }, call);
  }

  /** Marks the failures up to this event as seen. */
  async inboxSeen(through: number, options?: CallOptions): Promise<SeenAnswer> {
    return this.post<SeenAnswer>("/v1/inbox/seen", ["seen"], { through }, { repeatable: true }, options);
  }

  /** What this machine supports, and how to fix what is missing. */
  async doctor(options?: CallOptions): Promise<DoctorAnswer> {
    return this.get<DoctorAnswer>("/v1/doctor", ["findings"], {}, options);
  }

  /** Removes what ended long ago. */
  async gc(options: { olderThan?: Duration | undefined; dryRun?: boolean | undefined } & CallOptions = {}): Promise<GcAnswer> {
    const { olderThan, dryRun, ...call } = options;
    return this.post<GcAnswer>("/v1/gc", ["removed"], { olderThan, dryRun }, {}, call);
  }

  /** Makes a token for TCP; its text is shown only here. */
  async addToken(options: { owner?: string | undefined; label?: string | undefined; expires?: Duration | undefined } & CallOptions = {}): Promise<TokenAnswer> {
    const { owner, label, expires, ...call } = options;
    return this.post<TokenAnswer>("/v1/tokens", ["token"], { owner, label, expires }, {}, call);
  }

  /** The tokens, without their text. */
  async tokens(options?: CallOptions): Promise<Token[]> {
    return (await this.get<{ tokens: Token[] }>("/v1/tokens", ["tokens"], {}, options)).tokens;
  }

  async revokeToken(id: string, options?: CallOptions): Promise<Token> {
    return this.link.call<Token>({ method: "DELETE", path: `/v1/tokens/${encodeURIComponent(id)}`, repeatable: false }, ["id"], options);
  }

  /** Ends the daemon. Processes run on, unless they are to be stopped too. */
  async shutdown(options: { stopProcesses?: boolean | undefined } & CallOptions = {}): Promise<ShutdownAnswer> {
    const { stopProcesses, ...call } = options;
    return this.post<ShutdownAnswer>("/v1/shutdown", ["survivors"], { stopProcesses }, {}, call);
  }

  private get<T extends object>(path: string, needs: readonly (keyof T & string)[], query: object, options?: CallOptions): Promise<T> {
    return this.link.call<T>({ method: "GET", path, query: toRequest(query), repeatable: true }, needs, options);
  }

  private post<T extends object>(path: string, needs: readonly (keyof T & string)[], body: object, { repeatable = false, extraMs = 0 }, options?: CallOptions): Promise<T> {
    return this.link.call<T>({ method: "POST", path, body: toRequest(body), repeatable, extraMs }, needs, options);
  }
}
