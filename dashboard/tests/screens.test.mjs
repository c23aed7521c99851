// Every view in a real Chromium, against a real daemon: what it shows, that it can be used with the keyboard and on a phone, and that axe finds nothing.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { AxeBuilder } from "@axe-core/playwright";
import { Stage, until } from "./stage.mjs";

let stage, page, ids;

before(async () => {
  stage = await Stage.open();
  ids = {
    web: await stage.start("printf '\\033[32mready\\033[0m in \\033[1;31m3\\033[0m ms\\n'; exec sleep 600", "--name", "web"),
    tests: await stage.startAs("chat-7", "echo collected 812 items; (setsid sleep 600 &); sleep 600 & wait", "--name", "tests"),
    build: await stage.startAs("ci", "echo Compiling; echo 'error: no field x' >&2; exit 2", "--name", "build"),
    strays: await stage.startAs("ci", "echo leader done; (sleep 600 &)", "--name", "strays"),
    ask: await stage.start("printf 'package name: '; read name; echo \"got $name\"; exec sleep 600", "--name", "ask", "--pty"),
  };
  await stage.cli("wait", ids.build).catch(() => {});
  page = await stage.page();
});

after(() => stage?.close());

const go = (hash, on = page) => on.evaluate((hash) => { location.hash = hash; }, hash);

test("the overview shows every process with its last line, and news without a reload", async () => {
  await go("#/");
  const row = (name) => page.locator(".processes li", { hasText: name });
  await row("web").getByText("ready in 3 ms").waitFor();
  await row("strays").getByText("strays left").waitFor();
  await row("build").getByText("exit code 2").waitFor();
  await row("ask").getByText("waits for input").waitFor();
  await until("the badge counts what needs a person", async () => (await page.locator("header .count").textContent()) === String(await page.locator(".inbox li").count()));
  await stage.start("echo a newcomer; exec sleep 600", "--name", "late");
  await row("late").getByText("a newcomer").waitFor();
  await page.fill("#filter", "chat-7");
  await until("only the filtered are shown", async () => (await page.locator(".processes li").count()) === 1);
  await page.fill("#filter", "");
});

test("the inbox shows what needs a person, takes a reply, and forgets failures that were seen", async () => {
  await go("#/");
  const item = (text) => page.locator(".inbox li", { hasText: text });
  await item("build").getByText("exit code 2").waitFor();
  const question = item("package name");
  await question.getByRole("textbox").fill("pinfold");
  await question.getByRole("button", { name: "Send" }).click();
  await until("the program got the line", async () => (await stage.cli("logs", "ask")).includes("got pinfold"));
  await question.waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Mark failures as seen" }).click();
  await item("build").waitFor({ state: "detached" });
});

test("the keyboard alone finds a process, opens it, and stops it after a question that shows its tree", async () => {
  const victim = await stage.start("sleep 601 & exec sleep 600", "--name", "victim");
  await go("#/owners");
  await page.locator("#owners-title").waitFor();
  await page.keyboard.press("1");
  await page.locator(".processes li", { hasText: "victim" }).waitFor();
  await page.keyboard.press("/");
  await page.keyboard.type("victim");
  await page.keyboard.press("Escape");
  await until("one row is left", async () => (await page.locator("[data-row]:visible", { hasText: "victim" }).count()) === 1);
  await until("the row has the focus", async () => {
    await page.keyboard.press("j");
    return page.evaluate(() => document.activeElement?.textContent?.includes("victim"));
  });
  await page.keyboard.press("x");
  const dialog = page.getByRole("dialog");
  await dialog.getByText("sleep 601", { exact: true }).waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  await page.keyboard.press("Enter");
  await page.waitForURL(new RegExp(`process/${victim}`));
  await page.getByRole("button", { name: "Stop" }).click();
  await dialog.getByRole("button", { name: "Stop it" }).click();
  await until("it was stopped", async () => (await stage.json("show", victim)).status === "finished");
  assert.equal((await stage.json("show", victim)).stopped_by, "dashboard");
  await page.locator("h1", { hasText: "stopped" }).waitFor();
});

test("a log has its colours", async () => {
  await go(`#/process/${ids.web}`);
  const piece = page.locator(".line span", { hasText: "3" }).first();
  await piece.waitFor();
  const style = await piece.evaluate((element) => [element.style.color, element.style.fontWeight]);
  assert.deepEqual(style, ["var(--ansi-1)", "700"]);
  assert.equal(await page.locator(".line").first().textContent(), "ready in 3 ms");
});

test("the tree shows the leader, what it started and what detached; strays are what is alive after the leader", async () => {
  await go(`#/process/${ids.tests}/tree`);
  const rows = page.locator("tbody tr");
  await until("three processes are shown", async () => (await rows.count()) === 3);
  await rows.filter({ hasText: "leader" }).waitFor();
  await rows.filter({ hasText: "detached" }).waitFor();
  assert.equal(await rows.filter({ hasText: "stray" }).count(), 0, "the leader is alive");
  await go(`#/process/${ids.strays}/tree`);
  await page.getByText("The leader has exited").waitFor();
  await rows.locator(".badge", { hasText: "stray" }).waitFor();
  assert.equal(await rows.filter({ hasText: "leader" }).count(), 0);
});

test("CPU and memory are charted while a process lives", async () => {
  await go(`#/process/${ids.web}`);
  const chart = page.getByRole("img", { name: /^Memory: / });
  await chart.waitFor();
  await until("the curve has two points", async () => /L/.test((await chart.locator("path").getAttribute("d")) ?? ""));
});

test("a terminal is attached, takes keys and keeps to the content security policy", async () => {
  const id = await stage.start("exec sh", "--pty", "--name", "shell");
  page.problems.length = 0;
  await go(`#/process/${id}/terminal`);
  await page.getByText("attached", { exact: true }).waitFor();
  await page.locator(".xterm-helper-textarea").focus();
  await page.keyboard.type("echo $((6*7))-answer\n");
  await until("the answer is on the screen", async () => (await page.locator(".xterm-rows").textContent())?.includes("42-answer"));
  assert.deepEqual(page.problems, []);
});

test("the timeline shows each owner's processes with outcomes and causes", async () => {
  await go("#/timeline");
  const lane = (owner, name) => page.getByRole("region", { name: `Owner ${owner}` }).locator("li", { hasText: name });
  await lane("ci", "build").getByText("exit code 2").waitFor();
  await lane("chat-7", "tests").getByText("running").waitFor();
  await lane("default", "victim").getByText("stopped").waitFor();
  await lane("ci", "build").locator("a").focus();
  await lane("ci", "build").getByText(/exit code 2 · on its own · .* to .*\(/).waitFor();
  await page.keyboard.press("j");
  await until("the line of the next row is shown instead", async () => (await page.locator(".about").count()) === 1 && (await lane("ci", "build").locator(".about").count()) === 0);
  await lane("default", "victim").locator("a").focus();
  await lane("default", "victim").getByText(/stopped · killed by TERM · stopped by dashboard/).waitFor();
  const phone = await stage.page({ viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true });
  await go("#/timeline", phone);
  await phone.getByRole("button", { name: "build: how it ended" }).tap();
  await phone.getByText(/exit code 2 · on its own/).waitFor();
  assert.match(phone.url(), /#\/timeline$/);
  await phone.context().close();
});

test("a search over everything opens a hit in its context", async () => {
  await go("#/search");
  await page.fill("#pattern", "no FIELD x");
  await page.keyboard.press("Enter");
  const hit = page.locator(".found a", { hasText: "error: no field x" });
  await hit.waitFor();
  await hit.click();
  await page.waitForURL(new RegExp(`process/${ids.build}/log`));
  await page.locator(".line.marked", { hasText: "error: no field x" }).waitFor();
  await page.locator(".line", { hasText: "Compiling" }).waitFor();
});

test("an agent's question is answered, and its turns are shown", async () => {
  const agent = await stage.agent("reviewer");
  await go("#/agents");
  await page.locator(".cards li", { hasText: "reviewer" }).locator("a").click();
  await page.fill("#prompt", "permission");
  await page.getByRole("button", { name: "Send" }).click();
  await go("#/");
  const item = page.locator(".inbox li", { hasText: "rm -rf x" });
  await item.getByRole("button", { name: "Deny" }).click();
  await item.waitFor({ state: "detached" });
  await go(`#/agents/${agent.id}`);
  await page.getByText("was denied").waitFor();
  await page.locator(".turns .badge", { hasText: "completed" }).waitFor();
});

test("events, owners, tokens and the doctor are shown; a token is made and revoked", async () => {
  await go("#/events");
  await page.locator("tbody tr", { hasText: "exit code 2" }).first().waitFor();
  await page.selectOption("#kind", "started");
  await until("only starts are shown", async () => {
    const kinds = await page.locator("tbody tr td:nth-child(3)").allTextContents();
    return kinds.length > 0 && kinds.every((kind) => kind === "started");
  });
  await go("#/owners");
  await page.locator("tbody tr", { hasText: "chat-7" }).waitFor();
  await page.getByLabel("Label").fill("laptop");
  await page.getByRole("button", { name: "Make a token" }).click();
  await page.locator(".made code", { hasText: "pinfold_" }).waitFor();
  await page.getByRole("button", { name: "Revoke laptop" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Revoke it" }).click();
  await page.getByText("There is no token.").waitFor();
  await go("#/doctor");
  await page.locator(".findings strong", { hasText: /^cgroup$/ }).waitFor();
});

test("a dashboard that may only look offers nothing to do", async () => {
  const reader = await stage.page({}, "--read-only");
  await reader.getByText("read only").waitFor();
  await go(`#/process/${ids.web}`, reader);
  const stop = reader.getByRole("button", { name: "Stop" });
  await stop.waitFor();
  assert.equal(await stop.isDisabled(), true);
  await reader.context().close();
});

const ROUTES = () => [
  "#/", `#/process/${ids.web}`, `#/process/${ids.tests}/tree`, `#/process/${ids.ask}/terminal`, `#/process/${ids.build}/details`,
  "#/?owner=ci&filter=e", "#/timeline", "#/search", "#/search?for=error&created=between", "#/agents", "#/events", "#/owners", "#/doctor",
];

for (const [name, options] of [
  ["light", { colorScheme: "light" }],
  ["dark", { colorScheme: "dark" }],
  ["a phone", { colorScheme: "light", viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true }],
]) {
  test(`axe finds nothing, nothing overflows and the policy is kept: ${name}`, async () => {
    const own = await stage.page(options);
    for (const hash of ROUTES()) {
      await go(hash, own);
      await own.locator("main h1, main h2").first().waitFor();
      await own.waitForLoadState("load");
      if (hash.includes("for=")) await own.locator(".found mark").first().waitFor();
      if (hash.includes("owner=")) await own.locator(".processes li").first().waitFor();
      if (hash === "#/timeline") {
        await own.getByRole("button", { name: "build: how it ended" }).click();
        await own.locator(".about").waitFor();
      }
      const found = await new AxeBuilder({ page: own }).analyze();
      const told = found.violations.map((violation) => `${violation.id}: ${violation.nodes.map((node) => `${node.html} ${node.failureSummary}`).join("; ")}`);
      assert.deepEqual(told, [], `${hash} in ${name}`);
      const [content, width] = await own.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
      assert.ok(content <= width, `${hash} in ${name} is ${content} px wide on a screen of ${width} px`);
    }
    assert.deepEqual(own.problems, []);
    await own.context().close();
  });
}

test("a daemon that was killed is waited for, and the page says what to type", async () => {
  const own = await stage.page();
  const pid = (await stage.json("daemon", "status")).pid;
  process.kill(pid, "SIGKILL");
  await own.getByText("The daemon does not answer").waitFor();
  await stage.cli("ps");
  await own.context().close();
});
