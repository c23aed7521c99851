import assert from "node:assert/strict";
import { test } from "node:test";

import { type Chunk, Pinfold, type Process, WaitTimeout } from "pinfold";

import { rejection, Stage, until } from "./stage.js";

/** A process that writes each line it reads, until its input ends. */
function echo(pf: Pinfold): Promise<Process> {
  return pf.start("while read line; do echo \"line $line\"; done", { stdin: "pipe" });
}

async function collect(chunks: AsyncIterable<Chunk>): Promise<Chunk[]> {
  const all = [];
  for await (const chunk of chunks) all.push(chunk);
  return all;
}

function assertContiguous(chunks: Chunk[], from = 0): void {
  for (const { cursor, next, gap } of chunks) {
    assert.equal(cursor, gap ? gap.to : from);
    from = next;
  }
}

const textOf = (chunks: Chunk[]) => chunks.map(({ text }) => text).join("");

test("a follow gets each piece as it is written, and ends with the output", async () => {
  await using stage = new Stage();
  const process = await echo(stage.client());
  const chunks: Chunk[] = [];
  await process.send("0\n");
  for await (const chunk of process.output({ follow: true })) {
    chunks.push(chunk);
    await process.send(`${chunks.length}\n`, { eof: chunks.length === 5 });
    if (chunks.length === 5) break;
  }
  assertContiguous(chunks);
  assert.equal(textOf(chunks), [0, 1, 2, 3, 4].map((number) => `line ${number}\n`).join(""));
  const rest = await collect(process.output({ follow: true, cursor: chunks.at(-1)!.next }));
  assert.equal(textOf(rest), "line 5\n");
});

test("a follow goes on at its cursor over kill -9 of the daemon", async () => {
  await using stage = new Stage();
  const process = await echo(stage.client());
  const chunks: Chunk[] = [];
  await process.send("0\n");
  for await (const chunk of process.output({ follow: true })) {
    chunks.push(chunk);
    const count = chunks.length;
    if (count === 2 || count === 4) await stage.killDaemon();
    if (count < 6) await process.send(`${count}\n`, { eof: count === 5 });
  }
  assertContiguous(chunks);
  assert.equal(textOf(chunks), [0, 1, 2, 3, 4, 5].map((number) => `line ${number}\n`).join(""));
});

test("a follow that waits when the daemon is killed starts another one", async () => {
  await using stage = new Stage();
  const process = await echo(stage.client());
  const follower = collect(process.output({ follow: true }));
  await process.send("a\n");
  await process.wait({ until: "match", pattern: "line a" });
  await stage.killDaemon();
  // Nothing but the follow runs now: it alone brings the daemon back.
  await until("the follow has started a daemon", async () => stage.client({ autostart: false }).health().then(() => true, () => false));
  await process.send("b\n", { eof: true });
  assert.equal(textOf(await follower), "line a\nline b\n");
});

test("a huge output is read in bounded chunks, exactly", async () => {
  await using stage = new Stage();
  const process = await stage.client().start("head -c 30000000 /dev/zero | tr '\\0' x");
  let size = 0;
  for await (const { text, cursor, next, gap } of process.output({ follow: true })) {
    assert.equal(gap, null);
    assert.equal(cursor, size);
    assert.ok(text.length <= 256 << 10);
    size = next;
  }
  assert.equal(size, 30_000_000);
});

test("dropped output is reported as a gap", async () => {
  await using stage = new Stage();
  const process = await stage.client().start("head -c 8000000 /dev/zero | tr '\\0' x", { outputLimit: "1M" });
  await process.wait({ until: "finished" });
  const chunks = await collect(process.output());
  assertContiguous(chunks);
  const gaps = chunks.flatMap(({ gap }) => gap ?? []);
  const missing = gaps.reduce((sum, { from, to }) => sum + to - from, 0);
  assert.ok(missing > 0);
  assert.equal(textOf(chunks).length + missing, 8_000_000);
});

test("characters split between writes, invalid bytes and separate streams are read without loss", async () => {
  await using stage = new Stage();
  const pf = stage.client();
  const process = await pf.start("printf '\\303'; read x; printf '\\251|\\377'", { stdin: "pipe" });
  const follower = collect(process.output({ follow: true }));
  await process.wait({ until: "output", cursor: 0 });
  assert.deepEqual(await collect(process.output()), [], "half a character is not given");
  await process.send("\n");
  assert.equal(textOf(await follower), "é|\ufffd");
  const separate = await pf.start("echo out; echo err >&2", { streams: "separate" });
  await separate.wait({ until: "finished" });
  assert.equal(textOf(await collect(separate.output({ stream: "stderr", follow: true }))), "err\n");
  assert.equal((await separate.read({ grep: "ou" })).matches?.[0]?.text, "out");
  assert.equal(textOf(await collect(separate.output({ tail: "1 lines" }))).split("\n").length, 2);
});

test("an abort ends a wait, a run and a follow with its reason, and the process runs on", async () => {
  await using stage = new Stage();
  const pf = stage.client();
  const process = await echo(pf);
  const reason = new Error("enough");
  const waits = [
    (signal: AbortSignal) => process.wait({ signal }),
    (signal: AbortSignal) => process.waitReady({ signal }).catch((error) => (signal.aborted ? Promise.reject(error) : process.wait({ signal }))),
    (signal: AbortSignal) => pf.waitAny([process], { signal }),
    (signal: AbortSignal) => collect(process.output({ follow: true, signal })),
    (signal: AbortSignal) => pf.run("cat", { stdin: "pipe", key: "kept", signal }),
    (signal: AbortSignal) => pf.events({ after: 1000, signal }).next(),
  ];
  for (const wait of waits) {
    const controller = new AbortController();
    const waiting = wait(controller.signal);
    await process.refresh();
    controller.abort(reason);
    assert.equal(await waiting.catch((error: unknown) => error), reason);
    assert.equal(await wait(AbortSignal.abort(reason)).catch((error: unknown) => error), reason);
  }
  assert.equal((await process.refresh()).status, "running");
  const kept = await pf.start("cat", { stdin: "pipe", key: "kept" });
  assert.equal(kept.record.status, "running");
  await rejection(WaitTimeout, process.wait({ timeout: "0s" }));
});
