import assert from "node:assert/strict";
import { test } from "node:test";

import { ForbiddenError, InvalidArgumentError, ProtocolError } from "pinfold";

import { Impostor, rejection, Stage } from "./stage.js";

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}

test("bytes are what the process wrote, and go on at their cursor over kill -9 of the daemon", async () => {
  await using stage = new Stage();
  const pf = stage.client();
  const cat = await pf.start("cat; printf err >&2", { stdin: "pipe", streams: "separate" });
  const chunks = cat.bytes({ follow: true, stream: "stdout" });
  let seen = Buffer.alloc(0);
  for (const piece of [[0, 255, 195], [169], [1, 2]]) {
    await cat.send(new Uint8Array(piece));
    const { value } = await chunks.next();
    assert.ok(value);
    assert.equal(value.cursor, seen.length);
    seen = Buffer.concat([seen, value.data]);
    assert.equal(value.next, seen.length);
    await stage.killDaemon();
  }
  await cat.send("", { eof: true });
  assert.ok((await chunks.next()).done);
  assert.deepEqual([...seen], [0, 255, 195, 169, 1, 2]);
  assert.equal(Buffer.concat((await collect(cat.bytes({ stream: "stderr" }))).map(({ data }) => data)).toString(), "err");
  await rejection(InvalidArgumentError, cat.bytes({ cursor: -1 }).next());
});

test("bytes that were dropped are a gap, and bytes of another program a ProtocolError", async () => {
  await using stage = new Stage();
  const process = await stage.client().start("yes 0123456789abcde | head -c 20000000", { outputLimit: "1M" });
  await process.wait({ until: "finished" });
  let [position, shown] = [0, 0];
  for await (const { cursor, next, data, gap } of process.bytes()) {
    position = gap?.to ?? position;
    assert.equal(cursor, position);
    [position, shown] = [next, shown + data.length];
  }
  assert.deepEqual([position, shown], [20_000_000, 20_000_000 - (await process.refresh()).output.dropped]);
  await using impostor = await Impostor.answering(200, "bytes", { "pinfold-cursor": "many" });
  const pf = impostor.client();
  const other = Object.create(process, { link: { value: Reflect.get(pf, "link") } }) as typeof process;
  await rejection(ProtocolError, other.bytes().next());
});

test("a start has the environment of the program, unless it says otherwise", async () => {
  await using stage = new Stage();
  const pf = stage.client();
  process.env["SDK_COLOUR"] = "blue";
  const show = "echo ${SDK_COLOUR-unset} ${OWN-unset}";
  assert.equal((await pf.run(show, { env: { OWN: "1" } })).text, "blue 1\n");
  assert.equal((await pf.run(show, { env: { SDK_COLOUR: null } })).text, "unset unset\n");
  assert.equal((await pf.run(show, { inheritEnv: false, env: { OWN: "1" } })).text, "unset 1\n");
});

test("a run can be stopped when its wait ends", async () => {
  await using stage = new Stage();
  const pf = stage.client();
  const { process } = await pf.run("cat", { stdin: "pipe", wait: "100ms", onWaitTimeout: "stop" });
  await process.wait({ until: "finished" });
  assert.equal(process.cause, "time_limit");
  await rejection(InvalidArgumentError, pf.run("true", { onWaitTimeout: "stop" }));
  await rejection(InvalidArgumentError, pf.waitAny([]));
});

test("output is searched, sizes and samples are read, a process is handed over", async () => {
  await using stage = new Stage();
  const [parent, child] = [stage.client({ owner: "parent" }), stage.client({ owner: "child", parent: "parent" })];
  await child.run("echo line 3; echo line 4", { labels: { team: "ui" } });
  assert.deepEqual((await collect(child.search("line [45]", { label: ["team=ui"] }))).map(({ text }) => text), ["line 4"]);
  const shell = await child.start(["cat"], { pty: true });
  assert.deepEqual((await shell.resize(20, 60)).size, { rows: 20, cols: 60 });
  assert.equal((await shell.samples()).id, shell.id);
  assert.equal((await shell.handover("look after it")).owner, "parent");
  assert.deepEqual((await (await parent.get(shell.id)).stop({ grace: "0s" })).survivors, []);
});

test("the daemon is administered", async () => {
  await using stage = new Stage();
  const pf = stage.client();
  const { admin } = pf;
  const chat = pf.owner("chat");
  await chat.start("cat", { stdin: "pipe" });
  assert.deepEqual((await admin.owners()).map(({ owner }) => owner), ["chat"]);
  assert.equal((await admin.releaseOwner("chat")).released, 0);
  assert.equal((await admin.endOwner("chat", { grace: "1s" })).stopped.length, 1);
  for await (const event of pf.events({ consumer: "bot" })) {
    await event.ack();
    break;
  }
  assert.deepEqual((await admin.consumers()).map(({ name }) => name), ["bot"]);
  assert.equal((await admin.forgetConsumer("bot")).name, "bot");
  const { token } = await admin.addToken({ owner: "remote", label: "test" });
  assert.ok(token);
  const [shown] = await admin.tokens();
  assert.equal((await admin.revokeToken(shown!.id)).owner, "remote");
  assert.ok((await admin.doctor()).findings.length > 0);
  assert.deepEqual((await admin.gc({ dryRun: true })).removed, []);
  assert.equal((await admin.inbox()).failed, 0);
  assert.equal((await admin.inboxSeen(0)).seen, 0);
  await rejection(ForbiddenError, stage.client({ owner: "chat" }).admin.tokens());
  assert.deepEqual((await admin.shutdown({ stopProcesses: true })).survivors, []);
});
