// A log of 64 MiB: opened in the middle, scrolled over the edges of its windows, searched, copied and downloaded.

import assert from "node:assert/strict";
import { statSync } from "node:fs";
import { after, before, test } from "node:test";
import { Stage, until } from "./stage.mjs";

// 64 bytes each, the newline included.
const LINES = 1_000_000;
const line = (number) => `line ${String(number).padStart(9, "0")} ${"x".repeat(48)}`;

let stage, page, id;

before(async () => {
  stage = await Stage.open();
  id = await stage.start(`seq -f 'line %09.0f ${"x".repeat(48)}' 0 ${LINES - 1}`, "--name", "long");
  await stage.cli("wait", id);
  page = await stage.page();
});

after(() => stage?.close());

const shown = () => page.locator(".log-rows .line").evaluateAll((rows) => rows.map((row) => [parseFloat(row.style.top), row.textContent]).sort((one, other) => one[0] - other[0]).map(([, text]) => text));

async function assertContiguous() {
  const lines = await shown();
  assert.ok(lines.length > 10, `${lines.length} lines are shown`);
  const first = Number(lines[0].slice(5, 14));
  lines.forEach((text, at) => assert.equal(text, line(first + at)));
  return first;
}

test("it opens in the middle, with the line of that byte in view", async () => {
  await page.evaluate((hash) => { location.hash = hash; }, `#/process/${id}/log?at=${500_000 * 64}`);
  await page.locator(".line.marked", { hasText: "line 000500000" }).waitFor();
  await assertContiguous();
});

test("scrolling over the edges of windows shows every line once, in both directions", async () => {
  const pane = page.locator(".log-pane");
  const first = await assertContiguous();
  await until("20,000 lines further up", async () => {
    await pane.evaluate((box) => { box.scrollTop -= 30_000; });
    await new Promise((done) => setTimeout(done, 30));
    const now = Number((await shown())[0]?.slice(5, 14));
    return now < first - 20_000;
  });
  const up = await assertContiguous();
  await until("and 40,000 lines down", async () => {
    await pane.evaluate((box) => { box.scrollTop += 30_000; });
    await new Promise((done) => setTimeout(done, 30));
    return Number((await shown())[0]?.slice(5, 14)) > up + 40_000;
  });
  await assertContiguous();
  const rows = await page.locator(".log-rows .line").count();
  assert.ok(rows < 500, `${rows} rows are drawn`);
});

test("the slider goes to any byte, G to the end, g to the beginning", async () => {
  await page.locator("#log-at").evaluate((slider) => {
    slider.value = String(900_000 * 64);
    slider.dispatchEvent(new Event("change", { bubbles: true }));
  });
  await page.locator(".line", { hasText: "line 000900000" }).waitFor();
  await page.locator(".log-pane").focus();
  await page.keyboard.press("G");
  await page.locator(".line", { hasText: line(LINES - 1) }).waitFor();
  await page.keyboard.press("g");
  await page.locator(".line", { hasText: line(0) }).waitFor();
  await assertContiguous();
});

test("a search finds the needle and shows it in its context; n goes on", async () => {
  await page.fill("#log-search", "000(123456|765432) x");
  await page.keyboard.press("Enter");
  await page.getByText("1 of 2").waitFor();
  await page.locator(".line.marked", { hasText: "line 000123456" }).waitFor();
  await page.locator(".line mark").first().waitFor();
  await assertContiguous();
  await page.locator(".log-pane").focus();
  await page.keyboard.press("n");
  await page.locator(".line.marked", { hasText: "line 000765432" }).waitFor();
  await page.locator(".hits button", { hasText: "000123456" }).click();
  await page.locator(".line.marked", { hasText: "line 000123456" }).waitFor();
});

test("what is loaded is copied, and everything is downloaded", async () => {
  await page.getByRole("button", { name: "Copy" }).click();
  await page.getByText(/^Copied/).waitFor();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  assert.ok(copied.includes(`${line(123456)}\n${line(123457)}\n`));
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Download" }).click()]);
  assert.equal(download.suggestedFilename(), "long.log");
  assert.equal(statSync(await download.path()).size, LINES * 64);
});

/** The marked line is inside the pane, not only in the document. */
async function assertInView(text) {
  await page.locator(".line.marked", { hasText: text }).waitFor();
  await until(`“${text}” is in view`, () => page.evaluate(() => {
    const [line, pane] = [".line.marked", ".log-pane"].map((name) => document.querySelector(name).getBoundingClientRect());
    return line.top >= pane.top && line.bottom <= pane.bottom;
  }));
}

test("a search whose answers end with their budget finds every hit, and n goes on beyond what was found", async () => {
  const wide = await stage.start(`seq -f 'needle %04.0f ${"w".repeat(5000)}' 1 801`, "--name", "wide");
  await stage.cli("wait", wide);
  await page.evaluate((hash) => { location.hash = hash; }, `#/process/${wide}`);
  await page.locator(".line", { hasText: "needle 0801" }).waitFor();
  await page.fill("#log-search", "needle");
  await page.keyboard.press("Enter");
  await page.getByText(/^1 of \d+\+$/).waitFor();
  await page.locator(".log-pane").focus();
  await page.keyboard.press("N");
  await until("the last of the hits so far", async () => /^(\d+) of \1\+$/.test((await page.locator(".log .bar .row > span").first().textContent()) ?? ""));
  await page.keyboard.press("n");
  await page.getByText(/^\d+ of 801$/).waitFor();
  assert.equal(await page.getByRole("button", { name: "More" }).count(), 0);
  await page.keyboard.press("g");
  await page.fill("#log-search", "needle 0801");
  await page.keyboard.press("Enter");
  await page.getByText("1 of 1", { exact: true }).waitFor();
  await assertInView("needle 0801");
});

test("every hit is in view when it is selected, also if the log was followed while it grows", async () => {
  const follows = await stage.start("seq -f 'row %03.0f' 1 200; while :; do printf tick; sleep 0.05; echo; done", "--name", "follows");
  await page.evaluate((hash) => { location.hash = hash; }, `#/process/${follows}`);
  await page.locator(".line", { hasText: "tick" }).first().waitFor();
  assert.equal(await page.getByLabel("Follow").isChecked(), true);
  await page.fill("#log-search", "row ...5");
  await page.keyboard.press("Enter");
  await page.getByText("no hits").waitFor();
  await page.fill("#log-search", "row ..5");
  await page.keyboard.press("Enter");
  // The unfinished line at the end is not more of it.
  await page.getByText("1 of 20", { exact: true }).waitFor();
  await assertInView("row 005");
  assert.equal(await page.getByLabel("Follow").isChecked(), false);
  for (const row of ["015", "025", "035"]) {
    await page.getByRole("button", { name: "Next hit" }).click();
    await assertInView(`row ${row}`);
  }
  await page.locator(".log-pane").focus();
  for (const row of ["025", "015", "005", "195"]) {
    await page.keyboard.press("N");
    await assertInView(`row ${row}`);
  }
  const current = page.locator(".hits [aria-current]");
  assert.equal(await current.textContent(), "row 195");
  assert.equal(await current.locator("mark").textContent(), "row 195");
});

test("a process that writes without end is followed at its end", async () => {
  const chatty = await stage.start("while :; do seq 1 100000; done", "--name", "chatty", "--output-limit", "4M");
  await page.evaluate((hash) => { location.hash = hash; }, `#/process/${chatty}`);
  await page.locator(".log-rows .line").first().waitFor();
  const position = () => page.locator(".position .mono").textContent();
  const before = await position();
  await until("the end moves", async () => (await position()) !== before);
  const rows = await page.locator(".log-rows .line").count();
  assert.ok(rows < 500, `${rows} rows are drawn`);
  await page.getByRole("button", { name: "Kill" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Kill it" }).click();
  await until("it ends", async () => (await stage.json("show", chatty)).status === "finished");
});
