#!/usr/bin/env node
// Runs the program of the platform package in place of this one: same arguments, same streams, same exit.
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { constants } from "node:os";

const name = `@pinfold/${process.platform}-${process.arch}`;
let program;
try {
  program = createRequire(import.meta.url).resolve(`${name}/pinfold`);
} catch {
  console.error(
    `pinfold: the package ${name} is not installed: pinfold runs on Linux (x64); ` +
      "if this is such a machine, install without --no-optional",
  );
  process.exit(1);
}

const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
// Whoever ends this process means the program. The keys of a terminal reach the program without us.
for (const signal of ["SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP"]) {
  const isKey = process.stdin.isTTY && (signal === "SIGINT" || signal === "SIGQUIT");
  process.on(signal, () => isKey || child.kill(signal));
}
child.on("error", (error) => {
  console.error(`pinfold: cannot run ${program}: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  process.exit(signal ? 128 + constants.signals[signal] : code);
});
