// The daemon on this machine: where its socket is, and starting it. The same rules as in the command line program.

import { spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { basename, dirname, isAbsolute, join, resolve } from "node:path";

import { DaemonStartError, InvalidArgumentError, NotInstalledError } from "./errors.js";

/** Time for `pinfold daemon start`, which itself gives up after 10 seconds. */
const START_TIMEOUT_MS = 20_000;
/** `sun_path` has 108 bytes, one of them for the terminating NUL. */
const MAX_SOCKET_PATH = 107;
/** How much of what a failed start wrote is kept. */
const MAX_REASON = 16 << 10;

export class LocalDaemon {
  readonly socket: string;
  private readonly home: string;
  /** The start under way, shared by all requests that need it. */
  private starting: Promise<void> | null = null;

  constructor(home: string | undefined, private readonly binary: string | undefined) {
    this.home = home === undefined ? defaultHome() : resolve(home);
    this.socket = join(this.home, "socket");
  }

  /** Returns when a daemon runs. */
  start(): Promise<void> {
    this.starting ??= this.runStart().finally(() => (this.starting = null));
    return this.starting;
  }

  private runStart(): Promise<void> {
    const program = this.binary ?? (process.env["PINFOLD_BINARY"] || "pinfold");
    return new Promise((done, fail) => {
      // The program hands its work on if this runs inside a process that pinfold keeps; so it is not repeated here.
      const child = spawn(program, ["--home", this.home, "daemon", "start"], { stdio: ["ignore", "ignore", "pipe"] });
      let reason = "";
      child.stderr.setEncoding("utf8").on("data", (text: string) => (reason = (reason + text).slice(-MAX_REASON)));
      const timer = setTimeout(() => child.kill("SIGKILL"), START_TIMEOUT_MS);
      const settle = (error: Error | null) => {
        clearTimeout(timer);
        child.stderr.destroy();
        error ? fail(error) : done();
      };
      child.once("error", (error: NodeJS.ErrnoException) => settle(spawnError(program, error)));
      child.once("close", (code, signal) => {
        const text = reason.trim().replace(/^pinfold: /, "") || (signal ? `no answer within ${START_TIMEOUT_MS / 1000}s` : `exit code ${code}`);
        settle(code === 0 ? null : new DaemonStartError(`the daemon could not be started: ${text}`));
      });
    });
  }
}

/**
 * A path to the socket that fits into a socket address: the path itself, or one through `/proc/self/fd` of its directory, which stays
 * open until `release` is called. Call it once the connection is open or has failed.
 */
export function shortPath(socket: string): { path: string; release: () => void } {
  if (Buffer.byteLength(socket) <= MAX_SOCKET_PATH) return { path: socket, release: () => {} };
  const directory = openSync(dirname(socket), "r");
  let open = true;
  const release = () => {
    if (open) closeSync(directory);
    open = false;
  };
  return { path: `/proc/self/fd/${directory}/${basename(socket)}`, release };
}

function defaultHome(): string {
  const home = fromEnvironment("PINFOLD_HOME");
  if (home) return home;
  const state = fromEnvironment("XDG_STATE_HOME");
  if (state) return join(state, "pinfold");
  const user = fromEnvironment("HOME");
  if (user) return join(user, ".local/state/pinfold");
  throw new InvalidArgumentError("neither PINFOLD_HOME nor HOME is set: set PINFOLD_HOME to a directory for pinfold's state");
}

function fromEnvironment(variable: string): string | undefined {
  const value = process.env[variable];
  if (value && !isAbsolute(value)) {
    throw new InvalidArgumentError(`${variable} is \`${value}\`, which is not an absolute path: set it to an absolute directory`);
  }
  return value;
}

function spawnError(program: string, error: NodeJS.ErrnoException): Error {
  if (error.code !== "ENOENT" && error.code !== "EACCES") return new DaemonStartError(`cannot run ${program}: ${error.message}`);
  return new NotInstalledError(
    `no daemon is running, and the program \`${program}\` cannot be run to start one: install pinfold (\`cargo install --path crates/cli\` ` +
      "in its repository) so that it is on your PATH, or set PINFOLD_BINARY to its path",
  );
}
