// What `pf.run("true")` costs beyond the same request by a bare node:http call: both in one run, by turns, as the ratio of their medians.
// Run by `sdk/typescript/check bench`.

import { mkdtempSync, rmSync } from "node:fs";
import http from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { Pinfold } from "pinfold";

const ROUNDS = 500;
const WARM_UP = 50;

const home = mkdtempSync(join(tmpdir(), "pinfold-bench-"));
const pf = new Pinfold({ home });
const agent = new http.Agent({ keepAlive: true });

function bare() {
  return new Promise((done, fail) => {
    const body = JSON.stringify({ command: "true", cwd: process.cwd(), env: { ...process.env }, inherit_env: false, wait: "60s", idempotency_key: crypto.randomUUID() });
    const headers = { host: "localhost", "content-type": "application/json", "content-length": Buffer.byteLength(body) };
    const request = http.request({ socketPath: join(home, "socket"), method: "POST", path: "/v1/processes", headers, agent }, (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (piece) => (text += piece));
      response.on("end", () => done(JSON.parse(text)));
    });
    request.on("error", fail);
    request.end(body);
  });
}

async function timed(work) {
  const start = performance.now();
  await work();
  return performance.now() - start;
}

const median = (times) => times.sort((a, b) => a - b)[times.length >> 1];

const [ours, theirs] = [[], []];
for (let round = -WARM_UP; round < ROUNDS; round += 1) {
  const [a, b] = [await timed(() => pf.run("true")), await timed(bare)];
  if (round >= 0) ours.push(a), theirs.push(b);
}
const [a, b] = [median(ours), median(theirs)];
console.log(`pf.run("true") ${a.toFixed(3)} ms, bare node:http ${b.toFixed(3)} ms, ratio ${(a / b).toFixed(2)} (medians of ${ROUNDS}, by turns)`);

const { pid } = await pf.health();
await pf.close();
agent.destroy();
process.kill(pid, "SIGTERM");
for (let alive = true; alive; await new Promise((done) => setTimeout(done, 10))) {
  try {
    process.kill(pid, 0);
  } catch {
    alive = false;
  }
}
rmSync(home, { recursive: true, force: true });
