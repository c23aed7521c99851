import assert from "node:assert/strict";
import { test } from "node:test";

import { EndedBeforeError, ExitError, InvalidArgumentError, NoStdinError, NotFoundError, type Outcome, WaitTimeout } from "pinfold";

import { rejection, Stage, until } from "./stage.js";

test("a failure is a result with outcome, cause and text", async () => {
  await using stage = new Stage();
  const result = await stage.client({ owner: "ci" }).run("echo out; echo err >&2; exit 3", { wait: "60s", budget: "8k" });
  assert.deepEqual(result.outcome, { kind: "exited", code: 3 } satisfies Outcome);
  assert.equal(result.cause, "on_its_own");
  assert.equal(result.text, "out\nerr\n");
  assert.equal(result.omitted, null);
  assert.equal(result.record.owner, "ci");
});

test("check throws an ExitError with the record and the output", async () => {
  await using stage = new Stage();
  const error = await rejection(ExitError, stage.client().run("echo why; kill -TERM $$", { check: true }));
  assert.equal(error.outcome.kind === "signaled" && error.outcome.name, "TERM");
  assert.equal(error.record.status, "finished");
  assert.equal(error.text, "why\n");
  assert.match(error.message, /was ended by signal TERM/);
  assert.deepEqual((await stage.client().run("true", { check: true })).outcome, { kind: "exited", code: 0 });
});

test("a run that outlasts its wait has no outcome yet and keeps running", async () => {
  await using stage = new Stage();
  const result = await stage.client().run(["cat"], { wait: "10ms", stdin: "pipe" });
  assert.equal(result.outcome, null);
  assert.equal(result.record.status, "running");
  const error = await rejection(WaitTimeout, stage.client().run("read x", { wait: "10ms", stdin: "pipe", check: true }));
  assert.equal(error.records[0]?.status, "running");
});

test("options reach the process: directory, environment, labels, limits", async () => {
  await using stage = new Stage();
  const pf = stage.client();
  const result = await pf.run("pwd; echo $GIVEN-$GONE", { cwd: "/usr", env: { GIVEN: "yes", GONE: null, NOT: undefined }, labels: { team: "ui" }, timeLimit: "1h" });
  assert.equal(result.text, "/usr\nyes-\n");
  assert.deepEqual(result.record.labels, { team: "ui" });
  assert.equal(result.record.limits?.time_ms, 3_600_000);
  assert.equal((await pf.run("pwd")).text.trim(), process.cwd());
  const limited = await pf.run("cat", { stdin: "pipe", timeLimit: "10ms" });
  assert.equal(limited.cause, "time_limit");
});

test("a server is ready when it listens on its leased port, and stops without survivors", async () => {
  await using stage = new Stage();
  const pf = stage.client();
  const server = 'require("http").createServer((_, r) => r.end("hello")).listen(process.env.PORT)';
  const web = await pf.start([process.execPath, "-e", server], { name: "web", ports: ["PORT"], timeLimit: "2h" });
  assert.equal(await web.waitReady({ timeout: "60s" }), web.ports["PORT"]);
  assert.equal(await (await fetch(`http://127.0.0.1:${web.ports["PORT"]}/`)).text(), "hello");
  assert.equal((await pf.get("web")).id, web.id);
  const { record, survivors } = await web.stop();
  assert.deepEqual(survivors, []);
  assert.equal(record.cause, "stop_requested");
  assert.equal(web.outcome?.kind, "signaled");
});

test("waitReady follows the ready condition, and says when the process ended before", async () => {
  await using stage = new Stage();
  const pf = stage.client();
  const ready = await pf.start("echo listening on x; cat", { stdin: "pipe", ready: { output: "listening on", timeout: "60s" } });
  await ready.waitReady();
  assert.equal(ready.record.ready?.state, "ready");
  const broken = await pf.start("exit 9", { ready: { output: "never" } });
  const error = await rejection(EndedBeforeError, broken.waitReady({ timeout: "60s" }));
  assert.deepEqual(error.record.outcome, { kind: "exited", code: 9 });
  const silent = await pf.start("cat", { stdin: "pipe", ready: { output: "never" } });
  await rejection(WaitTimeout, silent.waitReady({ timeout: "10ms" }));
  assert.equal((await silent.refresh()).status, "running");
});

test("input is written in order, large input too, and the end of input is passed on", async () => {
  await using stage = new Stage();
  const pf = stage.client();
  const large = Buffer.alloc(3 << 20, "0123456789abcde\n");
  const cat = await pf.start("cat | sha256sum", { stdin: "pipe" });
  await cat.send("first\n");
  await cat.send(large);
  await cat.send(new Uint8Array([0, 255]), { eof: true });
  await cat.wait();
  const expected = await crypto.subtle.digest("SHA-256", Buffer.concat([Buffer.from("first\n"), large, Buffer.from([0, 255])]));
  assert.equal((await cat.read()).text.split(" ")[0], Buffer.from(expected).toString("hex"));
  const deaf = await pf.start("sleep 1000");
  await rejection(NoStdinError, deaf.send("x"));
  const full = await pf.start(["sleep", "1000"], { stdin: "pipe" });
  await rejection(WaitTimeout, full.send(large, { timeout: "50ms" }));
});

test("a terminal takes keys and shows a screen", async () => {
  await using stage = new Stage();
  const shell = await stage.client().start(["sh"], { pty: { rows: 10, cols: 40 }, env: { PS1: "ready> " } });
  await shell.wait({ until: "input", timeout: "60s" });
  await shell.send("echo $((6 * 7))", { keys: ["enter"] });
  await shell.wait({ until: "match", pattern: "^42", timeout: "60s" });
  await until("the screen shows it", async () => (await shell.screen()).lines.includes("42"));
});

test("the first of several is found, and all of them", async () => {
  await using stage = new Stage();
  const pf = stage.client();
  const [slow, quick] = [await pf.start("cat", { stdin: "pipe" }), await pf.start("exit 7")];
  const first = await pf.waitAny([slow, quick], { timeout: "10m" });
  assert.equal(first.id, quick.id);
  assert.deepEqual(first.outcome, { kind: "exited", code: 7 });
  const error = await rejection(WaitTimeout, pf.waitAll([slow, quick], { timeout: "10ms" }));
  assert.deepEqual(error.records.map(({ id }) => id), [slow.id]);
  await slow.send("", { eof: true });
  assert.deepEqual((await pf.waitAll([slow, quick])).map(({ outcome }) => outcome?.kind), ["exited", "exited"]);
});

test("signals, pauses, lists and removal act on the process", async () => {
  await using stage = new Stage();
  const pf = stage.client();
  const cat = await pf.start("cat", { stdin: "pipe", labels: { kind: "cat" } });
  assert.equal((await cat.pause()).record.paused, true);
  assert.equal((await cat.resume()).record.paused, false);
  await pf.run("true");
  const ids = [];
  for await (const found of pf.list({ label: ["kind=cat"], limit: 1 })) ids.push(found.id);
  assert.deepEqual(ids, [cat.id]);
  let count = 0;
  for await (const _ of pf.list({ limit: 1 })) count += 1;
  assert.equal(count, 2, "both pages are read");
  assert.ok((await cat.signal("KILL")).reached >= 1);
  await cat.wait({ until: "finished" });
  await cat.remove();
  await rejection(NotFoundError, cat.refresh());
});

test("leaving the scope of an owner ends what was started there, and nothing else", async () => {
  await using stage = new Stage();
  const pf = stage.client({ owner: "ci" });
  const mine = await pf.start("cat", { stdin: "pipe" });
  const started = [];
  {
    await using chat = pf.owner("chat-7");
    started.push(await chat.start("cat", { stdin: "pipe" }), await chat.start("cat", { stdin: "pipe", lifetime: "keep" }));
    assert.equal(started[0]!.record.owner, "chat-7");
    assert.equal(started[0]!.record.parent, "ci");
    await rejection(NotFoundError, chat.get(mine.id));
  }
  const [ended, kept] = started;
  assert.equal((await pf.get(ended!.id)).cause, "owner_ended");
  assert.equal((await pf.get(kept!.id)).outcome, null);
  assert.equal((await mine.refresh()).outcome, null);
});

test("wrong arguments are refused before anything is sent, or by the daemon with its advice", async () => {
  await using stage = new Stage();
  const pf = stage.client();
  const wrong = (value: unknown) => value as never;
  await rejection(InvalidArgumentError, pf.run(wrong(5)));
  await rejection(InvalidArgumentError, pf.run([]));
  await rejection(InvalidArgumentError, pf.run(["ls", wrong(1)]));
  await rejection(InvalidArgumentError, pf.run("true", { wait: wrong(5000) }));
  await rejection(InvalidArgumentError, pf.run("true", { timeLimit: "soon" }));
  await rejection(InvalidArgumentError, pf.run("true", { httpTimeout: "30" }));
  assert.throws(() => stage.client({ url: "nowhere" }), InvalidArgumentError);
  assert.throws(() => stage.client({ token: "t" }), InvalidArgumentError);
  const cat = await pf.start("cat", { stdin: "pipe" });
  await rejection(InvalidArgumentError, cat.send(wrong(5)));
  await rejection(InvalidArgumentError, cat.output({ cursor: -1 }).next());
});
