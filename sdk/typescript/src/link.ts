// The transport together with the owner in whose name requests are made.

import type { Ask, BytesAnswer, Transport } from "./transport.js";
import type { CallOptions, Duration } from "./types.js";

export interface Identity {
  owner?: string | undefined;
  /** The owner's parent, which sees what the owner has. The first one given is final. */
  parent?: string | undefined;
  /** The owner counts as gone this long after its last contact. */
  ownerGrace?: Duration | undefined;
}

export class Link {
  private readonly headers: Record<string, string> = {};

  constructor(readonly transport: Transport, readonly identity: Identity) {
    // Header values are Latin-1; the daemon reads names as UTF-8.
    const set = (name: string, value: string | undefined) => {
      if (value !== undefined) this.headers[name] = Buffer.from(String(value)).toString("latin1");
    };
    set("pinfold-owner", identity.owner);
    set("pinfold-parent", identity.parent);
    set("pinfold-owner-grace", identity.ownerGrace);
  }

  call<T extends object>(ask: Ask, needs: readonly (keyof T & string)[], options?: CallOptions): Promise<T> {
    return this.transport.call<T>(ask, this.headers, needs, options);
  }

  callForBytes(ask: Ask, options?: CallOptions): Promise<BytesAnswer> {
    return this.transport.callForBytes(ask, this.headers, options);
  }
}
