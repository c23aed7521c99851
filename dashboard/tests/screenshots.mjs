// The pictures of docs/, on a staged home: `node screenshots.mjs DIRECTORY`. `cargo xtask dashboard --screenshots` runs it.
//
// Every other scheme and the width of a phone go to DIRECTORY/more, to be looked at.

import { appendFileSync, copyFileSync, mkdirSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { Stage, until } from "./stage.mjs";

const MAX_BYTES = 150_000;
const out = process.argv[2];
if (!out) throw new Error("name the directory for the pictures");
const more = join(out, "more");
mkdirSync(more, { recursive: true });

const esc = (text) => text.replace(/<([\d;]+)>/g, "\\033[$1m");
/** A shell command that prints lines with colours, written as `<32>green<0>`. */
const print = (...lines) => `printf '${lines.map((line) => esc(line).replaceAll("%", "%%")).join("\\n")}\\n'`;

const VITE = [
  "", "> shop@2.3.0 dev", "> vite --port 5173", "",
  "  <1;32>VITE<0;32> v7.1.3<0>  <2>ready in<0> <1>312<0> ms", "",
  "  <32>➜<0>  <1>Local<0>:   <36>http://localhost:<1>5173<0;36>/<0>",
  "  <2>➜  Network: use --host to expose<0>", "",
];
const VIEWS = ["Cart", "Checkout", "Login", "Orders", "Product", "Search", "Settings", "Wishlist"];
const HMR = Array.from({ length: 96 }, (_, at) => {
  const [view, digits] = [VIEWS[at % VIEWS.length], (number) => String(number).padStart(2, "0")];
  const time = `<2>14:${digits(2 + Math.floor((at * 9) / 60))}:${digits((at * 9) % 60)}<0> <1;36>[vite]<0>`;
  if (at % 24 === 17) return [`${time} <31>Internal server error: Failed to resolve import "./${view}Price" from "src/views/${view}.tsx"<0>`, `  <33>Plugin: vite:import-analysis<0>`, `  <2>  3  |  import { price } from <0>"./${view}Price"`];
  if (at % 9 === 5) return [`${time} <32>page reload<0> <2>src/views/${view}.css<0>`];
  return [`${time} <32>hmr update<0> <2>/src/views/${view}.tsx<0>${at % 4 === 3 ? ` <33>(x${2 + (at % 3)})<0>` : ""}`];
}).flat();
const VITEST = [
  "", " <1;36>RUN<0>  <36>v3.2.4<0> <2>~/shop<0>", "",
  " <32>✓<0> src/cart.test.ts <2>(<0>14 tests<2>)<0> <32>31<2>ms<0>",
  " <31>❯<0> src/parse.test.ts <2>(<0>22 tests <2>|<0> <31>1 failed<0><2>)<0> <32>87<2>ms<0>",
  "   <31>×<0> parse > keeps a gap between two prices", "     <31>→ expected 1290 to be 1299<0>", "",
  " <2>Test Files<0>  <1;31>1 failed<0> <2>|<0> <1;32>11 passed<0>", "      <2>Tests<0>  <1;31>1 failed<0> <2>|<0> <1;32>203 passed<0>",
];
const CARGO = ["   <1;32>Compiling<0> serde v1.0.228", "   <1;32>Compiling<0> tokio v1.48.0", "   <1;32>Compiling<0> orders-api v0.4.1"];

/** The programs of the staged machine: what each prints, and what it does then. */
const WAIT = "exec sleep 3600";
const PROGRAMS = {
  "npm run dev": [[...VITE, ...HMR], WAIT],
  "npm audit": [["found 0 vulnerabilities"], ""],
  "npm create shop-admin": [["Package name: shop-admin"], `printf 'Overwrite existing files in ./admin? [y/N] '; read answer; ${WAIT}`],
  "tsc --watch": [["<2>[14:02:11]<0> Starting compilation in watch mode...", "<2>[14:02:14]<0> Found 0 errors. Watching for file changes."], WAIT],
  "vitest run": [VITEST, "exit 1"],
  "cargo build --release": [CARGO, "while :; do seq 20000 >/dev/null; sleep 0.02; done"],
  "playwright test": [["Running 24 tests using 2 workers", "  24 passed (41.2s)"], "(sleep 3600 &)"],
  "postgres -D data": [["LOG:  listening on 127.0.0.1:5432", "LOG:  ready to accept connections"], WAIT],
};
const PROCESSES = [
  { owner: "chat-7", name: "web", command: "npm run dev" },
  { owner: "chat-7", name: "types", command: "tsc --watch" },
  { owner: "chat-7/tests", name: "vitest", command: "vitest run" },
  { owner: "ci", name: "build", command: "cargo build --release" },
  { owner: "ci", name: "e2e", command: "playwright test" },
  { owner: "ci", name: "audit", command: "npm audit" },
  { owner: "default", name: "database", command: "postgres -D data", restart: "on-failure" },
  { owner: "default", name: "scaffold", command: "npm create shop-admin", pty: true },
];

const stage = await Stage.open();
try {
  await stage.cli("ps");
  const [bin, cwd] = [join(stage.home, "bin"), join(stage.home, "shop")];
  [bin, cwd].forEach((folder) => mkdirSync(folder));
  for (const [command, [lines, then]] of Object.entries(PROGRAMS)) {
    const [program, ...words] = command.split(" ");
    appendFileSync(join(bin, program), `[ "$*" = "${words.join(" ")}" ] && { ${print(...lines)}; ${then || "exit 0"}; }\n`, { mode: 0o755 });
  }
  // PATH is set in the command's environment, so that its line is what a person would type.
  const env = { PATH: `${bin}:${process.env.PATH}` };
  const started = await Promise.all(PROCESSES.map((request) => stage.post("/v1/processes", { ...request, cwd, env })));
  const web = started[0].id;
  const agent = await stage.agent("fixer", "npm install zod@4 --save-exact", "chat-7");
  await stage.post(`/v1/agents/${agent.id}/turns`, { text: "permission" });

  const SCHEMES = ["light", "dark"];
  const SIZES = { wide: { viewport: { width: 1120, height: 680 } }, phone: { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true } };
  for (const [size, options] of Object.entries(SIZES)) {
    for (const colorScheme of SCHEMES) {
      const page = await stage.page({ ...options, colorScheme });
      const go = (hash) => page.evaluate((hash) => { location.hash = hash; }, hash);
      const shoot = (name) => page.screenshot({ path: join(more, `${name}-${size}-${colorScheme}.png`), animations: "disabled" });

      for (const text of ["npm install zod", "Overwrite existing files", "203 passed"]) await page.locator(".inbox li", { hasText: text }).waitFor();
      await page.locator(".processes li", { hasText: "fixer" }).getByText("asks permission").waitFor();
      await page.locator(".processes li", { hasText: "e2e" }).getByText("strays left").waitFor();
      await until("CPU is known", async () => /\d %/.test((await page.locator(".processes li", { hasText: "Compiling" }).textContent()) ?? ""));
      await until("the badge counts all", async () => (await page.locator("header .count").textContent()) === "3");
      await shoot("overview");

      await go(`#/process/${web}`);
      await page.locator(".line").first().waitFor();
      await page.fill("#log-search", "Internal server error|Failed to");
      await page.keyboard.press("Enter");
      await page.getByText("1 of 4", { exact: true }).waitFor();
      await page.getByRole("button", { name: "Next hit" }).click();
      await page.getByText("2 of 4", { exact: true }).waitFor();
      await until("the selected hit is in view", () => page.evaluate(() => {
        const [line, pane] = [".line.marked", ".log-pane"].map((name) => document.querySelector(name)?.getBoundingClientRect());
        return line && line.top >= pane.top && line.bottom <= pane.bottom;
      }));
      await until("the chart has a curve", async () => /L/.test((await page.getByRole("img", { name: /^Memory: / }).locator("path").getAttribute("d")) ?? ""));
      await page.evaluate(() => document.activeElement?.blur());
      await shoot("log");

      await go("#/timeline");
      await page.getByRole("button", { name: "vitest: how it ended" }).click();
      await page.locator(".about").waitFor();
      await shoot("timeline");
      await go("#/search?for=passed");
      await page.getByText(/\d hits in/).waitFor();
      await shoot("search");
      await page.context().close();
    }
  }
  for (const [from, to, scheme] of [["overview", "dashboard-overview.png", "light"], ["log", "dashboard-log.png", "dark"]]) {
    copyFileSync(join(more, `${from}-wide-${scheme}.png`), join(out, to));
    const { size } = statSync(join(out, to));
    console.log(`${to}: ${size} bytes`);
    if (size > MAX_BYTES) throw new Error(`${to} has ${size} bytes, more than ${MAX_BYTES}`);
  }
  console.log(readdirSync(more).map((name) => join(more, name)).join("\n"));
} finally {
  await stage.close();
}
