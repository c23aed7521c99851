import assert from "node:assert/strict";
import { test } from "node:test";

import { Stage } from "./stage.js";

test("events come in order, from the beginning or from now on", async () => {
  await using stage = new Stage();
  const pf = stage.client();
  const { record } = await pf.run("true");
  const kinds = [];
  // The exit and the end of the output may be events of their own in between.
  for await (const event of pf.events({ process: record.id, kinds: ["started", "finished"] })) {
    kinds.push(event.kind);
    assert.equal(event.truncated, false);
    if (event.kind === "finished") break;
  }
  assert.deepEqual(kinds, ["started", "finished"]);
  const future = pf.events({ after: "latest", kinds: ["finished"] });
  const next = future.next();
  const later = await pf.run("exit 4");
  const event = (await next).value!;
  assert.equal(event.process, later.record.id);
  assert.deepEqual(event.outcome, { kind: "exited", code: 4 });
  await future.return();
});

test("a consumer gets an event again until it is acknowledged, also from another client and after kill -9", async () => {
  await using stage = new Stage();
  const pf = stage.client();
  const ids = [(await pf.run("true")).record.id, (await pf.run("true")).record.id, (await pf.run("true")).record.id];
  const options = { consumer: "bot", kinds: "announce", lease: "100ms" } as const;
  for await (const event of pf.events(options)) {
    assert.equal(event.process, ids[0]);
    break;
  }
  const seen = [];
  for await (const event of stage.client().events(options)) {
    seen.push(event.process);
    await event.ack();
    if (seen.length === 2) break;
  }
  assert.deepEqual(seen, ids.slice(0, 2), "the first one again, then the next");
  await stage.killDaemon();
  for await (const event of stage.client().events(options)) {
    assert.equal(event.process, ids[2]);
    await event.ack();
    break;
  }
});
