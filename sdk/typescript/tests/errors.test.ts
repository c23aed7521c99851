import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import * as pinfold from "pinfold";
import { ApiError, ConnectionLostError, DaemonStartError, HttpTimeoutError, NotFoundError, NotInstalledError, Pinfold, ProtocolError, UnreachableError } from "pinfold";

import { DOCS, Impostor, rejection, Stage } from "./stage.js";

test("every error code of the API has a class that carries the daemon's advice", async () => {
  const codes: string[] = JSON.parse(readFileSync(join(DOCS, "openapi.json"), "utf8")).components.schemas.ErrorCode.oneOf.flatMap(
    (one: { enum?: string[]; const?: string }) => one.enum ?? [one.const],
  );
  assert.ok(codes.length > 25);
  for (const code of codes) {
    // `recovering` and `shutting_down` are tried again until the timeout.
    await using impostor = await Impostor.answering(400, JSON.stringify({ code, message: `advice on ${code}`, id: "k3v9x2" }));
    const error = await rejection(ApiError, impostor.client().get("x"));
    const name = code.split("_").map((word) => word[0]!.toUpperCase() + word.slice(1)).join("") + "Error";
    assert.equal(error.name, name);
    assert.equal(error.constructor, pinfold[name as keyof typeof pinfold]);
    assert.deepEqual([error.code, error.advice, error.message, error.processId], [code, `advice on ${code}`, `advice on ${code}`, "k3v9x2"]);
  }
});

test("a code of a newer daemon is an ApiError", async () => {
  await using impostor = await Impostor.answering(418, '{"code": "constructor", "message": "new"}');
  const error = await rejection(ApiError, impostor.client().get("x"));
  assert.equal(error.constructor, ApiError);
  assert.equal(error.status, 418);
});

test("an old daemon that lacks fields is named as the reason", async () => {
  await using impostor = await Impostor.answering(200, '{"id": "k3v9x2"}');
  const error = await rejection(ProtocolError, impostor.client().run("true"));
  assert.match(error.message, /lacks `status`, `outcome`: the daemon is older/);
  await using empty = await Impostor.answering(200, "null");
  await rejection(ProtocolError, empty.client().health());
});

test("an answer that is not of this API is a ProtocolError", async () => {
  for (const [status, body] of [[200, "<html>"], [200, '{"half": '], [500, "oops"], [302, "{}"], [404, "{}"]] as const) {
    await using impostor = await Impostor.answering(status, body);
    await rejection(ProtocolError, impostor.client().health());
  }
});

test("an answer without end is cut off", async () => {
  await using impostor = await Impostor.handling((socket) => {
    socket.write("HTTP/1.1 200 OK\r\ncontent-length: 9000000000\r\n\r\n");
    const piece = Buffer.alloc(1 << 20, 32);
    const write = () => {
      while (!socket.destroyed && socket.write(piece));
    };
    socket.on("drain", write);
    write();
  });
  const error = await rejection(ProtocolError, impostor.client({ httpTimeout: "60s" }).health());
  assert.match(error.message, /larger than 64 MiB/);
});

test("a connection that breaks at any point is typed, and never hangs", async () => {
  const beginnings = ["", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{"];
  for (const beginning of beginnings) {
    await using impostor = await Impostor.handling((socket) => {
      socket.once("data", () => socket.end(beginning));
    });
    await rejection(ConnectionLostError, impostor.client().health());
  }
  await using garbage = await Impostor.handling((socket) => socket.end("220 smtp.example ESMTP\r\n"));
  await rejection(ConnectionLostError, garbage.client().health());
});

test("a daemon that accepts and stays silent is an HttpTimeoutError, half an answer too", async () => {
  for (const beginning of ["", "HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{"]) {
    await using impostor = await Impostor.handling((socket) => socket.once("data", () => socket.write(beginning)));
    await rejection(HttpTimeoutError, impostor.client().health());
    await rejection(HttpTimeoutError, impostor.client().run("true", { wait: "10ms" }));
  }
});

test("no daemon, and none may be started: the error says how to start it", async () => {
  const home = mkdtempSync(join(tmpdir(), "pinfold-ts-"));
  const error = await rejection(UnreachableError, new Pinfold({ home, autostart: false }).health());
  assert.match(error.message, /pinfold daemon start/);
  const missing = await rejection(NotInstalledError, new Pinfold({ home, binary: "/nowhere/pinfold" }).health());
  assert.match(missing.message, /install pinfold/);
  await rejection(UnreachableError, new Pinfold({ url: "http://127.0.0.1:1", token: "t" }).health());
  writeFileSync(join(home, "file"), "");
  await rejection(DaemonStartError, new Pinfold({ home: join(home, "file") }).health());
  rmSync(home, { recursive: true });
});

test("a daemon that cannot start passes its reason on", async () => {
  const home = mkdtempSync(join(tmpdir(), "pinfold-ts-"));
  writeFileSync(join(home, "config.toml"), "nonsense = 1\n");
  const error = await rejection(DaemonStartError, new Pinfold({ home }).health());
  assert.match(error.message, /nonsense/);
  rmSync(home, { recursive: true });
});

test("a home with a long path works", async () => {
  await using stage = new Stage();
  const home = join(stage.home, "long-".repeat(30));
  mkdirSync(home, { mode: 0o700 });
  const pf = stage.client({ home });
  assert.equal((await pf.run("echo here")).text, "here\n");
  await pf.run([process.env["PINFOLD_BINARY"]!, "--version"], { check: true });
  const { pid } = await pf.health();
  await rejection(NotFoundError, pf.get("nope"));
  process.kill(pid, "SIGTERM");
});

test("over TCP a token is needed, and with it all works the same", async () => {
  await using stage = new Stage();
  writeFileSync(join(stage.home, "config.toml"), '[tcp]\nlisten = "127.0.0.1:0"\n');
  const local = stage.client();
  const url = `http://${(await local.health()).tcp}`;
  await rejection(pinfold.UnauthorizedError, stage.client({ url }).run("true"));
  const { token } = JSON.parse(await stage.cli("token", "add", "--json"));
  const remote = stage.client({ url, token, owner: "far" });
  const { record, text } = await remote.run("echo $PINFOLD_OWNER", { check: true });
  assert.deepEqual([record.owner, text], ["far", "far\n"]);
});
