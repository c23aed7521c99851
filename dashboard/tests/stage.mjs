// A daemon of its own in a directory of its own, a browser that is signed in to it, and waiting for facts.

import { execFile } from "node:child_process";
import http from "node:http";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { chromium } from "playwright-core";

export const PINFOLD = process.env.PINFOLD_BINARY;
export const DEADLINE = 30_000;
const CHROMIUM = process.env.PINFOLD_CHROMIUM ?? "/usr/bin/chromium";
const exec = promisify(execFile);

export class Stage {
  constructor() {
    this.home = mkdtempSync(join(tmpdir(), "pinfold-dashboard-"));
    this.env = { ...process.env, PINFOLD_HOME: this.home };
    for (const name of ["PINFOLD_OWNER", "PINFOLD_PARENT", "PINFOLD_ID", "PINFOLD_SOCKET"]) delete this.env[name];
  }

  static async open() {
    const stage = new Stage();
    stage.browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
    return stage;
  }

  /** Runs a command of pinfold and gives what it prints. */
  async cli(...words) {
    const { stdout } = await exec(PINFOLD, words, { env: this.env, maxBuffer: 256 << 20 });
    return stdout;
  }

  /** Starts a process and gives its id. */
  async start(command, ...words) {
    const started = JSON.parse(await this.cli("run", "-d", "--json", ...words, "--", "sh", "-c", command));
    return started.id ?? started.record.id;
  }

  async startAs(owner, command, ...words) {
    return this.start(command, "--as", owner, ...words);
  }

  /** A request over the daemon's socket. */
  async post(path, body) {
    return new Promise((done, fail) => {
      const request = http.request({ socketPath: join(this.home, "socket"), method: "POST", path, headers: { host: "localhost" } }, (answer) => {
        let text = "";
        answer.on("data", (piece) => (text += piece));
        answer.on("end", () => (answer.statusCode < 300 ? done(JSON.parse(text)) : fail(new Error(text))));
      });
      request.on("error", fail);
      request.end(JSON.stringify(body));
    });
  }

  async json(...words) {
    return JSON.parse(await this.cli(...words, "--json"));
  }

  /** A page of a new browser profile, signed in. */
  async page(options = {}, ...words) {
    const context = await this.browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
    await context.grantPermissions(["clipboard-read", "clipboard-write"]);
    const page = await context.newPage();
    page.problems = [];
    page.on("console", (message) => message.type() === "error" && page.problems.push(message.text()));
    page.on("pageerror", (error) => page.problems.push(String(error)));
    page.setDefaultTimeout(DEADLINE);
    await page.goto((await this.cli("dashboard", "--print", ...words)).trim());
    await page.waitForSelector("#processes-title");
    page.base = `${new URL(page.url()).origin}/`;
    return page;
  }

  async close() {
    await this.browser?.close();
    await this.cli("daemon", "stop", "--all").catch(() => {});
    rmSync(this.home, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }
}

/** Waits until something is so. */
export async function until(what, look) {
  const end = Date.now() + DEADLINE;
  let last;
  while (Date.now() < end) {
    try {
      const found = await look();
      if (found) return found;
    } catch (error) {
      last = error;
    }
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error(`${what}: not within ${DEADLINE} ms${last ? ` (${last.message})` : ""}`);
}
