// Another web page, another local port and a kept process's dev server try to act through the dashboard, in the browser that is signed in to it.

import assert from "node:assert/strict";
import http from "node:http";
import { after, before, test } from "node:test";
import { Stage, until } from "./stage.mjs";

let stage, page, evil, seen;

before(async () => {
  stage = await Stage.open();
  page = await stage.page();
  seen = [];
  evil = http.createServer((request, answer) => {
    seen.push({ url: request.url, cookie: request.headers.cookie ?? "" });
    answer.setHeader("content-type", "text/html");
    answer.end("<!doctype html><title>evil</title><form method=post id=form></form><iframe id=frame></iframe>");
  });
  await new Promise((done) => evil.listen(0, "127.0.0.1", done));
});

after(async () => {
  evil?.close();
  await stage?.close();
});

const port = () => new URL(page.base).port;

async function intruded() {
  return (await stage.cli("ps", "--all", "--json")).includes("intruder");
}

/** What a page at this address can do to the dashboard with the browser's own means. */
async function attack(host) {
  const page2 = await page.context().newPage();
  await page2.goto(`http://${host}:${evil.address().port}/`);
  const results = await page2.evaluate(async (port) => {
    const base = `http://pinfold.localhost:${port}`;
    const body = JSON.stringify({ command: "true", name: "intruder" });
    const tries = {
      cors: () => fetch(`${base}/v1/processes`, { method: "POST", credentials: "include", body }),
      json: () => fetch(`${base}/v1/processes`, { method: "POST", credentials: "include", body, headers: { "content-type": "application/json", "pinfold-page": "x" } }),
      blind: () => fetch(`${base}/v1/processes`, { method: "POST", credentials: "include", mode: "no-cors", body }),
      read: () => fetch(`${base}/v1/processes`, { credentials: "include" }),
      beacon: async () => { navigator.sendBeacon(`${base}/v1/processes`, body); throw new Error("sent"); },
      login: () => fetch(`${base}/login`, { method: "POST", credentials: "include", mode: "no-cors", body: '{"key":"x"}' }),
    };
    const results = {};
    for (const [name, attempt] of Object.entries(tries)) {
      // An opaque answer has status 0: the page learns nothing.
      results[name] = await attempt().then((answer) => answer.status, () => 0);
    }
    results.script = await new Promise((done) => {
      const script = document.createElement("script");
      script.src = `${base}/assets/app.js`;
      script.onload = () => done(1);
      script.onerror = () => done(0);
      document.head.append(script);
    });
    results.socket = await new Promise((done) => {
      const socket = new WebSocket(`ws://pinfold.localhost:${port}/v1/processes/x/attach`, ["pinfold", "page.x"]);
      socket.onopen = () => done(1);
      socket.onerror = () => done(0);
    });
    results.frame = await new Promise((done) => {
      const frame = document.getElementById("frame");
      frame.onload = () => {
        try { done(frame.contentDocument ? 1 : 0); } catch { done(0); }
      };
      frame.src = `${base}/`;
    });
    results.storage = localStorage.getItem("pinfold-page") === null ? 0 : 1;
    return results;
  }, port());
  // A form goes to the dashboard as a navigation, with whatever cookies the browser sends.
  await page2.evaluate((port) => {
    const form = document.getElementById("form");
    form.action = `http://pinfold.localhost:${port}/v1/processes`;
    form.enctype = "text/plain";
    const input = document.createElement("input");
    input.name = '{"command":"true","name":"intruder","intent":"';
    input.value = '"}';
    form.append(input);
    form.submit();
  }, port());
  await page2.waitForURL(/pinfold\.localhost/);
  const text = await page2.textContent("body");
  await page2.close();
  return { results, text };
}

for (const host of ["127.0.0.1", "localhost", "pinfold.localhost", "evil.pinfold.localhost"]) {
  test(`a page at http://${host}:OTHER acts through nothing and reads nothing`, async () => {
    const { results, text } = await attack(host);
    for (const [name, status] of Object.entries(results)) assert.equal(status, 0, `${name}: ${JSON.stringify(results)}`);
    assert.match(text, /only the dashboard's own page/);
    assert.equal(await intruded(), false);
  });
}

test("a dev server that received the cookie cannot use it", async () => {
  // Opened under the dashboard's own name, the other port gets the cookie: cookies ignore ports.
  const page2 = await page.context().newPage();
  await page2.goto(`http://pinfold.localhost:${evil.address().port}/steal`);
  const cookie = seen.findLast((request) => request.url === "/steal").cookie;
  assert.match(cookie, /__Host-pinfold=/, "the browser sent it; if not, this test tries nothing");
  const forged = { host: `pinfold.localhost:${port()}`, origin: page.base.slice(0, -1), "sec-fetch-site": "same-origin", cookie };
  for (const headers of [forged, { ...forged, "pinfold-page": "pinfold_0" }]) {
    const status = await new Promise((done, fail) => {
      const request = http.request({ host: "127.0.0.1", port: port(), method: "POST", path: "/v1/processes", headers }, (answer) => done(answer.statusCode));
      request.on("error", fail);
      request.end(JSON.stringify({ command: "true", name: "intruder" }));
    });
    assert.equal(status, 401);
  }
  await page2.close();
});

test("the page itself works, and its key is gone from the address", async () => {
  assert.equal(new URL(page.url()).hash, "");
  assert.equal(await page.evaluate(() => fetch("/v1/processes").then((answer) => answer.status)), 401, "without the page secret");
  const [cookie] = await page.context().cookies();
  assert.deepEqual([cookie.name, cookie.httpOnly, cookie.secure, cookie.sameSite, cookie.domain], ["__Host-pinfold", true, true, "Strict", "pinfold.localhost"]);
  assert.equal(await page.evaluate(() => document.cookie), "");
});

test("output of a process cannot become part of the page", async () => {
  const id = await stage.start(`printf '%s\\n' '<img src=x onerror="document.title=1">' '<script>document.title=2</script>'; sleep 300`, "--name", "<b>bold</b>".replace(/[^a-z]/g, ""));
  await page.goto(`${page.base}#/process/${id}`);
  await page.getByText("<img src=x").waitFor();
  assert.equal(await page.locator(".log-pane img, .log-pane script").count(), 0);
  assert.match(await page.title(), /pinfold/);
});

test("signing out ends the session, and another tab cannot use it", async () => {
  const mine = await stage.page();
  const other = await mine.context().newPage();
  await other.goto(mine.base);
  await other.waitForSelector("header nav");
  await mine.getByRole("button", { name: "Sign out" }).click();
  await mine.getByText("You have signed out.").waitFor();
  await other.getByText("pinfold dashboard", { exact: true }).waitFor();
  await mine.context().close();
});

test("a used address signs nobody in, and says what to type", async () => {
  const url = (await stage.cli("dashboard", "--print")).trim();
  const context = await stage.browser.newContext();
  const first = await context.newPage();
  await first.goto(url);
  await first.waitForSelector("header nav");
  const stranger = await (await stage.browser.newContext()).newPage();
  await stranger.goto(url);
  await stranger.getByText("was used before").waitFor();
  await until("it is not signed in", async () => (await stranger.locator("header nav").count()) === 0);
  await context.close();
});
