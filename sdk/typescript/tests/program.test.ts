import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { BINARY, DOCS, Stage } from "./stage.js";

const run = promisify(execFile);
const PACKAGE = dirname(dirname(fileURLToPath(import.meta.url)));
const TIMEOUT_MS = 60_000;

const RUNTIMES = { node: [process.execPath], bun: ["bun"], deno: ["deno", "run", "--quiet", "--allow-all"] };

/** Makes a directory with this package and the pinfold program in it, and a program in TypeScript or JavaScript. */
function install(stage: Stage, name: string, source: string): string {
  const directory = join(stage.home, "program");
  mkdirSync(join(directory, "node_modules"), { recursive: true });
  mkdirSync(join(directory, "bin"));
  symlinkSync(PACKAGE, join(directory, "node_modules/pinfold"));
  symlinkSync(BINARY, join(directory, "bin/pinfold"));
  writeFileSync(join(directory, "package.json"), '{"type": "module"}');
  writeFileSync(join(directory, name), source);
  if (name.endsWith(".ts")) {
    const options = ["--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2023,esnext.disposable", "--types", "node", "--typeRoots", join(PACKAGE, "node_modules/@types")];
    execFileSync(process.execPath, [join(PACKAGE, "node_modules/typescript/bin/tsc"), ...options, name], { cwd: directory, stdio: "inherit" });
  }
  return directory;
}

/** Runs a program, which must end by itself, and returns what it prints. */
async function runProgram(stage: Stage, directory: string, [runtime, ...words]: readonly string[], name: string): Promise<string> {
  const { PINFOLD_BINARY: _, ...rest } = process.env;
  const env = { ...rest, PINFOLD_HOME: stage.home, PATH: `${directory}/bin:${process.env["PATH"]}` };
  // A program that does not end is killed at the timeout, which fails the test.
  const { stdout, stderr } = await run(runtime!, [...words, name], { cwd: directory, env, timeout: TIMEOUT_MS });
  assert.equal(stderr, "");
  return stdout;
}

function isInstalled(program: string): boolean {
  return (process.env["PATH"] ?? "").split(":").some((directory) => existsSync(join(directory, program)));
}

for (const [name, runtime] of Object.entries(RUNTIMES)) {
  const skip = name === "node" || isInstalled(name) ? false : `${name} is not installed`;
  test(`the example of the page works in ${name} as it stands there`, { skip }, async () => {
    await using stage = new Stage();
    const page = readFileSync(join(DOCS, "typescript.md"), "utf8");
    const [example, expected] = [/```ts\n([^]*?)```/, /```text\n([^]*?)```/].map((block) => block.exec(page)?.[1]);
    assert.ok(example, "the page has an example");
    const directory = install(stage, "example.ts", example);
    assert.equal(await runProgram(stage, directory, runtime, "example.js"), expected);
  });
}

test("a program ends by itself after use, whether or not it closes its client", async () => {
  const uses = {
    nothing: "",
    run: 'await pf.run("true");',
    "a follow that was left": 'const p = await pf.start("echo a; cat", { stdin: "pipe" }); for await (const chunk of p.output({ follow: true })) break;',
    "an aborted wait": 'const p = await pf.start("cat", { stdin: "pipe" }); await p.wait({ signal: AbortSignal.timeout(20) }).catch(() => {});',
    "a wait that timed out": 'const p = await pf.start("cat", { stdin: "pipe" }); await p.wait({ timeout: "10ms" }).catch(() => {});',
    "events that were left": 'await pf.run("true"); for await (const event of pf.events({ consumer: "c" })) break;',
    "a daemon that cannot be reached": 'await new Pinfold({ url: "http://127.0.0.1:1" }).health().catch(() => {});',
    close: 'await pf.run("true"); await pf.close();',
  };
  for (const [use, code] of Object.entries(uses)) {
    await using stage = new Stage();
    const directory = install(stage, "program.js", `import { Pinfold } from "pinfold"; const pf = new Pinfold(); ${code} console.log("done");`);
    assert.equal(await runProgram(stage, directory, RUNTIMES.node, "program.js"), "done\n", use);
  }
});
