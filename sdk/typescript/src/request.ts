// Options of this package as requests of the API: snake_case names, and checks that the daemon cannot make.

import { parseDuration } from "./duration.js";
import { InvalidArgumentError } from "./errors.js";
import type { StartOptions } from "./types.js";

const DURATIONS = new Set(["grace", "timeLimit", "idleLimit", "cpuTimeLimit", "ownerGrace", "cooldown", "heartbeat", "timeout", "quiet", "lease"]);

type Fields = Record<string, unknown>;

/** The fields of an object in snake_case, without those that are undefined. Unknown ones are kept: the daemon names them in its error. */
export function toRequest(options: object): Fields {
  const fields: Fields = {};
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined) continue;
    if (DURATIONS.has(name)) parseDuration(name, value);
    fields[name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)] = value;
  }
  return fields;
}

/** Variables that pinfold sets in every process: a new process gets its own. */
const NOT_PASSED_ON = new Set(["PINFOLD_ID", "PINFOLD_OWNER", "PINFOLD_MARK", "PINFOLD_HOME"]);

/** A start, without its wait. */
export function toStartRequest(command: string | readonly string[], options: StartOptions, isLocal: boolean): Fields {
  const { env, ports, notify, ready, key, signal: _, httpTimeout: __, ...rest } = options;
  const cwd = options.cwd ?? (isLocal ? process.cwd() : undefined);
  const passesOn = isLocal && options.inheritEnv === undefined;
  const variables = passesOn ? { ...ownEnvironment(), ...(env && definedOnly(env)) } : env && definedOnly(env);
  return {
    ...toRequest({ ...rest, cwd, env: variables, ports: ports && toPorts(ports) }),
    ...(passesOn && { inherit_env: false }),
    ...toCommand(command),
    ...(notify && { notify: toRequest(notify) }),
    ...(ready && { ready: toRequest(ready) }),
    idempotency_key: key ?? crypto.randomUUID(),
  };
}

function toCommand(command: unknown): Fields {
  if (typeof command === "string" && command !== "") return { command };
  if (Array.isArray(command) && command.length > 0 && command.every((word) => typeof word === "string")) return { argv: command };
  throw new InvalidArgumentError("the command must be a shell command as one string, or a program and its arguments as an array of strings");
}

function ownEnvironment(): Fields {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !NOT_PASSED_ON.has(name)));
}

function definedOnly(env: object): Fields {
  return Object.fromEntries(Object.entries(env).filter(([, value]) => value !== undefined));
}

function toPorts(ports: NonNullable<StartOptions["ports"]>): Fields {
  return Array.isArray(ports) ? Object.fromEntries(ports.map((name) => [name, "lease"])) : { ...ports };
}
