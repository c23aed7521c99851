// What people do in the dashboard over several views: find, filter, search and come back, restart, remove, and meet a hosted agent.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Stage, until } from "./stage.mjs";

const QUICK = 60;

let stage, page;

before(async () => {
  stage = await Stage.open();
  const quick = Array.from({ length: QUICK }, (_, number) => ({
    command: `echo quick ${number} done`, name: `quick-${number}`, owner: number % 2 ? "odd" : "even", labels: { part: String(number % 3) },
  }));
  // The first command starts the daemon.
  await stage.cli("wait", await stage.startAs("odd", "echo the oldest of all", "--name", "oldest"));
  await Promise.all(quick.map((request) => stage.post("/v1/processes", request)));
  await until("they have ended", async () => (await stage.get("/v1/processes?status=finished&limit=1")).total === QUICK + 1);
  page = await stage.page();
});

after(() => stage?.close());

const go = (hash, on = page) => on.evaluate((hash) => { location.hash = hash; }, hash);
const rows = (text) => page.locator(".processes li", text ? { hasText: text } : {});

test("older ended processes are shown when they are asked for, and stay when new ones come", async () => {
  await go("#/");
  await until("the latest fifty", async () => (await rows().count()) === 50);
  assert.equal(await rows("oldest").count(), 0);
  await page.getByRole("button", { name: "Show more (11)" }).click();
  await rows("oldest").waitFor();
  assert.equal(await rows().count(), QUICK + 1);
  assert.equal(await page.getByRole("button", { name: /^Show more/ }).count(), 0);
  const late = await stage.post("/v1/processes", { command: "echo later", name: "later" });
  await stage.cli("wait", late.id);
  await until("every one is shown once", async () => (await rows().count()) === QUICK + 2);
});

test("a filter says what it looks through, looks further when asked, and is kept over Back", async () => {
  await page.reload();
  await until("the latest fifty", async () => (await rows().count()) === 50);
  await page.fill("#filter", "oldest of");
  await page.getByText(/^0 of 50 processes.* The 12 oldest ended ones are not loaded\.$/).waitFor();
  await page.getByRole("button", { name: "Look through older ones (12)" }).click();
  await rows("the oldest of all").waitFor();
  assert.equal(await rows().count(), 1);
  await rows("oldest").locator("a").click();
  await page.locator(".line", { hasText: "the oldest of all" }).waitFor();
  await page.goBack();
  await page.locator("#processes-title").waitFor();
  assert.equal(await page.inputValue("#filter"), "oldest of");
  await page.fill("#filter", "");
});

test("the owner of a process leads to the owner's processes", async () => {
  const id = (await stage.get("/v1/processes?name=oldest&status=finished")).processes[0].id;
  await go(`#/process/${id}`);
  await page.locator("article.process").getByRole("link", { name: "odd", exact: true }).click();
  await page.locator(".chip", { hasText: "owner odd" }).waitFor();
  await until("only theirs", async () => (await rows().count()) === QUICK / 2 + 1);
  await rows("oldest").waitFor();
  await page.locator(".chip").click();
  await until("everybody's", async () => (await rows().count()) === 50);
});

test("a search is marked, narrowed by status, label and time, and found again with Back", async () => {
  await go("#/search");
  await page.fill("#pattern", "QUICK 1");
  await page.fill("#search-owner", "odd");
  await page.fill("#search-label", "part=2");
  await page.selectOption("#search-status", "ended");
  await page.selectOption("#search-created", "1h");
  await page.keyboard.press("Enter");
  // Of 1 and 10 to 19, the odd ones with a remainder of 2: 11 and 17.
  await page.getByText("2 hits in").waitFor();
  const hits = page.locator(".found a");
  assert.deepEqual((await hits.allTextContents()).sort(), ["quick 11 done", "quick 17 done"]);
  assert.deepEqual(await hits.locator("mark").allTextContents(), ["quick 1", "quick 1"]);
  await hits.first().click();
  await page.locator(".line.marked").waitFor();
  await page.goBack();
  await page.getByText("2 hits in").waitFor();
  assert.deepEqual([await page.inputValue("#pattern"), await page.inputValue("#search-label")], ["QUICK 1", "part=2"]);
  await page.selectOption("#search-status", "live");
  await page.getByRole("button", { name: "Search", exact: true }).click();
  await page.getByText("No output that was searched has").waitFor();
  await page.selectOption("#search-status", "");
  await page.selectOption("#search-created", "between");
  await page.fill("#search-from", "2001-01-01T00:00");
  await page.fill("#search-to", "2001-01-02T00:00");
  await page.getByRole("button", { name: "Search", exact: true }).click();
  await page.waitForURL(/created=between/);
  await page.getByText("No output that was searched has").waitFor();
  await page.goBack();
  await page.goBack();
  await page.getByText("2 hits in").waitFor();
});

test("a process with a restart policy is restarted after a question, and its page becomes that of the next run", async () => {
  const id = await stage.start("echo run of a service; exec sleep 600", "--name", "service", "--restart", "always");
  await go(`#/process/${id}`);
  const restart = page.getByRole("button", { name: "Restart" });
  await restart.click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("sleep 600").first().waitFor();
  await dialog.getByRole("button", { name: "Cancel" }).click();
  assert.equal((await stage.json("show", id)).status, "running");
  await restart.click();
  await dialog.getByRole("button", { name: "Restart it" }).click();
  await page.waitForURL((url) => /process\//.test(url.hash) && !url.hash.includes(id));
  const next = (await stage.json("show", id)).life.next;
  assert.match(page.url(), new RegExp(`process/${next}$`));
  await page.locator("h1", { hasText: "service" }).getByText("running").waitFor();
  assert.equal((await stage.json("show", id)).stopped_by, "dashboard");
  await go(`#/process/${id}/details`);
  await page.getByRole("link", { name: next }).waitFor();
  const plain = await stage.start("exec sleep 600", "--name", "plain");
  await go(`#/process/${plain}`);
  await page.getByRole("button", { name: "Stop" }).waitFor();
  assert.equal(await restart.count(), 0, "without a policy, what a restart needs is not stored");
  await go(`#/process/${next}`);
  await page.getByRole("button", { name: "Kill" }).click();
  await dialog.getByRole("button", { name: "Kill it" }).click();
  await page.getByRole("button", { name: "Remove" }).waitFor();
});

test("an ended process is removed after a question", async () => {
  const id = await stage.start("echo short", "--name", "doomed");
  await stage.cli("wait", id);
  await go(`#/process/${id}`);
  await page.getByRole("button", { name: "Remove" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("cannot be undone").waitFor();
  await dialog.getByRole("button", { name: "Cancel" }).click();
  assert.equal((await stage.json("show", id)).id, id);
  await page.getByRole("button", { name: "Remove" }).click();
  await dialog.getByRole("button", { name: "Remove it" }).click();
  await page.locator("#processes-title").waitFor();
  await assert.rejects(stage.json("show", id));
  await until("its row is gone", async () => (await rows("doomed").count()) === 0);
});

test("the process of a hosted agent is listed under the agent's name, and is not said to wait for input", async () => {
  const agent = await stage.agent("fixer", "npm install left-pad", "chat-9");
  await go("#/");
  const row = rows("fixer");
  await row.getByText("codex agent, 0 turns").waitFor();
  assert.equal(await rows("app-server").count(), 0);
  await stage.post(`/v1/agents/${agent.id}/turns`, { text: "permission" });
  await row.locator(".badge", { hasText: "asks permission" }).waitFor();
  await row.getByText("npm install left-pad").waitFor();
  assert.equal(await row.getByText("waits for input").count(), 0);
  assert.equal(await page.locator(".inbox li").count(), 1, "the question, and nothing else of it");
  await row.locator("a").click();
  await page.waitForURL(new RegExp(`agents/${agent.id}`));
  await go("#/timeline");
  await page.getByRole("region", { name: "Owner chat-9" }).getByRole("link", { name: "fixer" }).waitFor();
});

test("the list of keys has every key of a log", async () => {
  await page.keyboard.press("?");
  for (const key of ["n / N", "g / G", "f", "w"]) await page.locator(".keys kbd").getByText(key, { exact: true }).waitFor();
  await page.keyboard.press("Escape");
});
