// Builds the bundle that crates/daemon embeds into a directory, and checks its budget: `node build.mjs DIRECTORY`.

import { build } from "esbuild";
import { copyFileSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const KB = 1000;
const SHELL_BUDGET = 40 * KB;
const WHOLE_BUDGET = 200 * KB;

// The licences of what is bundled ask for this.
const NOTICE = `/* Includes Preact (c) 2015-present Jason Miller, @preact/signals (c) 2022-present Preact Team, xterm.js (c) 2017-2019 The xterm.js authors,
(c) 2014-2016 SourceLair Private Company, (c) 2012-2013 Christopher Jeffrey. MIT licence: dashboard/LICENCES.txt in the sources of pinfold. */`;

const out = process.argv[2];
if (!out) throw new Error("name the directory to build into");
mkdirSync(out, { recursive: true });
await build({
  entryPoints: { app: "src/app.tsx", terminal: "src/terminal.ts" },
  outdir: out,
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  legalComments: "none",
  banner: { js: NOTICE },
  jsx: "automatic",
  jsxImportSource: "preact",
  // The terminal is a bundle of its own, loaded by its address.
  external: ["/assets/*"],
  logLevel: "warning",
});
for (const file of ["index.html", "icon.svg"]) copyFileSync(join("src", file), join(out, file));

const size = (files) => files.reduce((sum, file) => sum + gzipSync(readFileSync(join(out, file)), { level: 9 }).length, 0);
const shell = size(["index.html", "app.js", "app.css", "icon.svg"]);
const whole = shell + size(["terminal.js", "terminal.css"]);
console.log(`shell ${(shell / KB).toFixed(1)} kB of ${SHELL_BUDGET / KB} kB gzipped, all ${(whole / KB).toFixed(1)} kB of ${WHOLE_BUDGET / KB} kB`);
if (shell > SHELL_BUDGET || whole > WHOLE_BUDGET) {
  console.error("the bundle is over its budget");
  process.exit(1);
}
