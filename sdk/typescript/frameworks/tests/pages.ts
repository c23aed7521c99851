// Runs the example of a page as it stands there, in a program of its own.

import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { DOCS, type Stage } from "./stage.js";

const MODULES = join(dirname(dirname(fileURLToPath(import.meta.url))), "node_modules");
const TIMEOUT_MS = 300_000;

/** Writes the example into a directory of its own and compiles it, strictly. */
export function installExample(stage: Stage, page: string): { program: string; expected: string } {
  const text = readFileSync(join(DOCS, `frameworks/${page}.md`), "utf8");
  const [example, expected] = [/```ts\n([^]*?)```/, /```text\n([^]*?)```/].map((block) => block.exec(text)?.[1]);
  assert.ok(example && expected, "the page has an example, and what it prints");
  const directory = join(stage.home, "program");
  mkdirSync(directory, { recursive: true });
  symlinkSync(MODULES, join(directory, "node_modules"));
  writeFileSync(join(directory, "package.json"), '{"type": "module"}');
  writeFileSync(join(directory, "example.ts"), example);
  const options = ["--strict", "--skipLibCheck", "--target", "es2022", "--module", "nodenext", "--lib", "es2023,esnext.disposable", "--types", "node"];
  execFileSync(process.execPath, [join(MODULES, "typescript/bin/tsc"), ...options, "example.ts"], { cwd: directory, stdio: "inherit" });
  return { program: join(directory, "example.js"), expected };
}

/** It must end by itself, say nothing on stderr and print what the page says. */
export async function runExample(stage: Stage, page: string, env: Record<string, string> = {}): Promise<void> {
  const { program, expected } = installExample(stage, page);
  const options = { cwd: dirname(program), env: { ...process.env, PINFOLD_HOME: stage.home, ...env }, timeout: TIMEOUT_MS };
  const { stdout, stderr } = await promisify(execFile)(process.execPath, [program], options);
  assert.deepEqual({ stdout, stderr }, { stdout: expected, stderr: "" });
}
