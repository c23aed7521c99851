import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import net from "node:net";
import { join } from "node:path";
import { test } from "node:test";

import { ClosedError, ConnectionLostError, Pinfold } from "pinfold";

import { Impostor, rejection, Stage, until } from "./stage.js";

async function count(pf: Pinfold): Promise<number> {
  let count = 0;
  for await (const _ of pf.list()) count += 1;
  return count;
}

/** A socket in front of a daemon's own that passes requests on, and breaks the connection instead of passing on some answers. */
async function lossy(stage: Stage, losesAnswer: (request: number) => boolean): Promise<Impostor & { requests: number }> {
  const counter = { requests: 0 };
  const impostor = await Impostor.handling((client) => {
    const daemon = net.connect(join(stage.home, "socket"));
    let loses = false;
    client.on("close", () => daemon.destroy()).on("end", () => daemon.end());
    client.on("data", (piece) => {
      if (piece.includes(" HTTP/1.1\r\n")) loses = losesAnswer(counter.requests++);
      daemon.write(piece);
    });
    daemon.on("error", () => client.destroy()).on("end", () => client.end());
    daemon.on("data", (piece) => (loses ? client.destroy() : client.write(piece)));
  });
  return Object.defineProperty(impostor, "requests", { get: () => counter.requests }) as Impostor & { requests: number };
}

test("a start whose answer is lost is repeated, and gives exactly one process", async () => {
  await using stage = new Stage();
  const direct = stage.client();
  await direct.health();
  await using front = await lossy(stage, (request) => request < 2);
  await using pf = front.client({ httpTimeout: "60s" });
  const process = await pf.start(`echo once >> ${stage.home}/marks; cat`, { stdin: "pipe" });
  await process.send("", { eof: true });
  await process.wait();
  assert.equal(readFileSync(`${stage.home}/marks`, "utf8"), "once\n");
  assert.equal(await count(direct), 1);
});

test("input whose answer is lost is written once", async () => {
  await using stage = new Stage();
  const cat = await stage.client().start("cat", { stdin: "pipe" });
  await using front = await lossy(stage, (request) => request === 1);
  await using pf = front.client({ httpTimeout: "60s" });
  const same = await pf.get(cat.id);
  await same.send("once\n");
  assert.equal(front.requests, 3);
  await cat.send("", { eof: true });
  await cat.wait();
  assert.equal((await cat.read()).text, "once\n");
});

test("a signal whose answer is lost is not sent again", async () => {
  await using stage = new Stage();
  const cat = await stage.client().start("cat", { stdin: "pipe" });
  await using front = await lossy(stage, (request) => request === 1);
  await using pf = front.client({ httpTimeout: "60s" });
  const same = await pf.get(cat.id);
  const error = await rejection(ConnectionLostError, same.signal("CONT"));
  assert.match(error.message, /may have been carried out/);
  assert.equal(front.requests, 2);
});

test("closing a client ends its calls and no process", async () => {
  await using stage = new Stage();
  const pf = stage.client();
  const cat = await pf.start("cat", { stdin: "pipe" });
  const waiting = rejection(ClosedError, cat.wait());
  await cat.refresh();
  await pf.close();
  await waiting;
  await rejection(ClosedError, cat.refresh());
  assert.equal((await stage.client().get(cat.id)).record.status, "running");
});

test("a run over kill -9 of the daemon returns the outcome of the one process it started", async () => {
  await using stage = new Stage();
  const pf = stage.client();
  await pf.health();
  const running = pf.run(`echo once >> ${stage.home}/marks; cat > /dev/null; exit 5`, { stdin: "pipe", name: "job" });
  await until("the command runs", async () => (await count(pf)) === 1 && (await pf.get("job")).record.status === "running");
  await stage.killDaemon();
  await (await pf.get("job")).send("", { eof: true });
  const { outcome } = await running;
  assert.deepEqual(outcome, { kind: "exited", code: 5 });
  assert.equal(readFileSync(`${stage.home}/marks`, "utf8"), "once\n");
  assert.equal(await count(pf), 1);
});

test("waits of all kinds go on over kill -9 of the daemon", async () => {
  await using stage = new Stage();
  const pf = stage.client();
  const cat = await pf.start("cat", { stdin: "pipe" });
  const waits = [cat.wait(), pf.waitAny([cat]), pf.waitAll([cat]), cat.wait({ until: "match", pattern: "word" })];
  await cat.refresh();
  await stage.killDaemon();
  await cat.send("a word\n", { eof: true });
  await Promise.all(waits);
  assert.deepEqual((await cat.refresh()).outcome, { kind: "exited", code: 0 });
});

test("many clients that find no daemon start one", async () => {
  await using stage = new Stage();
  const results = await Promise.all(Array.from({ length: 5 }, () => stage.client().run("echo x")));
  assert.deepEqual(results.map(({ text }) => text), Array(5).fill("x\n"));
});
