// A daemon of its own in a directory of its own, a browser that is signed in to it, and waiting for facts.

import { execFile } from "node:child_process";
import http from "node:http";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import { chromium } from "playwright-core";

export const PINFOLD = process.env.PINFOLD_BINARY;
export const DEADLINE = 30_000;
const CHROMIUM = process.env.PINFOLD_CHROMIUM ?? "/usr/bin/chromium";
/** A directory with a bundle to try instead of the one that the binary has. */
const BUNDLE = process.env.PINFOLD_BUNDLE;
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
  async request(method, path, body) {
    return new Promise((done, fail) => {
      const request = http.request({ socketPath: join(this.home, "socket"), method, path, headers: { host: "localhost" } }, (answer) => {
        let text = "";
        answer.on("data", (piece) => (text += piece));
        answer.on("end", () => (answer.statusCode < 300 ? done(JSON.parse(text)) : fail(new Error(text))));
      });
      request.on("error", fail);
      request.end(body && JSON.stringify(body));
    });
  }

  async get(path) {
    return this.request("GET", path);
  }

  async post(path, body) {
    return this.request("POST", path, body);
  }

  /** A hosted agent that is asked a permission in its turn `permission`; `asks` is the command that it asks for. */
  async agent(name, asks = "rm -rf x", owner = "default") {
    const work = join(this.home, `work-${name}`);
    mkdirSync(work);
    writeFileSync(join(work, "app-server"), readFileSync(process.env.PINFOLD_FAKE_AGENT, "utf8").replace("rm -rf x", asks));
    return this.post("/v1/agents", { kind: "codex", name, owner, program: "/bin/sh", cwd: work, approvals: "ask", wait: "30s" });
  }

  async json(...words) {
    return JSON.parse(await this.cli(...words, "--json"));
  }

  /** A page of a new browser profile, signed in. */
  async page(options = {}, ...words) {
    const context = await this.browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
    await context.grantPermissions(["clipboard-read", "clipboard-write"]);
    if (BUNDLE) await context.route(/\/assets\//, (request) => request.fulfill({ path: join(BUNDLE, basename(new URL(request.request().url()).pathname)) }));
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
