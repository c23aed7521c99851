// A daemon of its own in a directory of its own for each test, which leaves nothing behind; and servers that misbehave in its place.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import http from "node:http";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";

import { Pinfold, type PinfoldOptions } from "pinfold";

export const BINARY: string = process.env["PINFOLD_BINARY"] ?? assert.fail("set PINFOLD_BINARY to the pinfold program to test with");
/** The directory with openapi.json and the page. */
export const DOCS: string = process.env["PINFOLD_DOCS"] ?? assert.fail("set PINFOLD_DOCS to the directory docs of the repository");
const DEADLINE_MS = 60_000;
const run = promisify(execFile);

// Tests may run inside a process of pinfold, or with a home of their own.
for (const name of Object.keys(process.env)) if (/^PINFOLD_(?!BINARY|DOCS)/.test(name)) delete process.env[name];

export class Stage implements AsyncDisposable {
  readonly home = mkdtempSync(join(tmpdir(), "pinfold-ts-"));
  private readonly clients: Pinfold[] = [];
  private readonly deferred: (() => Promise<void>)[] = [];

  client(options: PinfoldOptions = {}): Pinfold {
    const client = new Pinfold({ home: this.home, ...options });
    this.clients.push(client);
    return client;
  }

  /** Does this at the end, before the daemon is stopped. */
  defer(work: () => Promise<void>): void {
    this.deferred.push(work);
  }

  /** Kills the daemon, and only the daemon, with SIGKILL. */
  async killDaemon(): Promise<void> {
    const { pid } = await this.client({ autostart: false }).health();
    process.kill(pid, "SIGKILL");
    await until(`daemon ${pid} is gone`, () => !isAlive(pid));
  }

  /** Runs a command of pinfold and returns what it prints. */
  async cli(...words: string[]): Promise<string> {
    return (await run(BINARY, ["--home", this.home, ...words])).stdout;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const work of this.deferred) await work();
    for (const client of this.clients) await client.close();
    await this.cli("daemon", "stop", "--all");
    await until("nothing is left behind", () => processesOf(this.home).length === 0, () => `left: ${processesOf(this.home).join("; ")}`);
    rmSync(this.home, { recursive: true, force: true });
  }
}

/** Processes with this home in their environment or command line. */
function processesOf(home: string): string[] {
  return readdirSync("/proc").filter((pid) => /^\d+$/.test(pid)).flatMap((pid) => {
    try {
      const command = readFileSync(`/proc/${pid}/cmdline`, "latin1");
      const mentions = command.includes(home) || readFileSync(`/proc/${pid}/environ`, "latin1").includes(home);
      return mentions && isAlive(Number(pid)) ? [`${pid} ${command.replaceAll("\0", " ")}`] : [];
    } catch {
      return []; // It ended meanwhile.
    }
  });
}

/** Whether it runs: a zombie does not. */
function isAlive(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "latin1"));
  } catch {
    return false;
  }
}

/** Waits until something holds that sends no event. */
export async function until(what: string, holds: () => boolean | Promise<boolean>, details: () => string = () => ""): Promise<void> {
  const end = performance.now() + DEADLINE_MS;
  while (!(await holds())) {
    assert.ok(performance.now() < end, `not within ${DEADLINE_MS / 1000}s: ${what} ${details()}`);
    await sleep(10);
  }
}

/** A server at the place of a daemon's socket. */
export class Impostor implements AsyncDisposable {
  readonly home = mkdtempSync(join(tmpdir(), "pinfold-ts-"));
  private readonly sockets = new Set<net.Socket>();

  private constructor(private readonly server: net.Server) {
    server.on("connection", (socket: net.Socket) => {
      this.sockets.add(socket);
      socket.on("error", () => {}).on("close", () => this.sockets.delete(socket));
    });
  }

  /** Answers every HTTP request with this status and body. */
  static answering(status: number, body: string, headers: Record<string, string> = {}): Promise<Impostor> {
    return Impostor.listen(http.createServer((_, response) => response.writeHead(status, headers).end(body)));
  }

  /** Does this with each connection. */
  static handling(handle: (socket: net.Socket) => void): Promise<Impostor> {
    return Impostor.listen(net.createServer({ allowHalfOpen: true }, handle));
  }

  private static async listen(server: net.Server): Promise<Impostor> {
    const impostor = new Impostor(server);
    await new Promise<void>((done) => server.listen(join(impostor.home, "socket"), done));
    return impostor;
  }

  client(options: PinfoldOptions = {}): Pinfold {
    return new Pinfold({ home: this.home, autostart: false, httpTimeout: "300ms", ...options });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    await new Promise((done) => this.server.close(done));
    rmSync(this.home, { recursive: true, force: true });
  }
}

/** What a rejected promise was rejected with, which must be of this class. */
export async function rejection<T extends Error>(kind: abstract new (...args: never[]) => T, work: Promise<unknown>): Promise<T> {
  const error = await work.then(() => assert.fail(`expected a ${kind.name}`), (error: unknown) => error);
  assert.ok(error instanceof kind, `expected a ${kind.name}, got ${error}`);
  return error;
}
