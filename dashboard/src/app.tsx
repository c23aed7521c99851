// The shell: signing in, navigation, keys, and which view is shown.

import { render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { followEvents, get, reachable, session, signIn, signOut, useLoaded } from "./api";
import { agents } from "./text";
import type { Agent, Inbox } from "./types";
import { Confirm, go, route, say, toast } from "./ui";
import { AgentsView } from "./views/agents";
import { DoctorView } from "./views/doctor";
import { EventsView } from "./views/events";
import { OverviewView } from "./views/overview";
import { OwnersView } from "./views/owners";
import { ProcessView } from "./views/process";
import { SearchView } from "./views/search";
import { TimelineView } from "./views/timeline";
import "./style.css";

const VIEWS: [string, string, string][] = [
  ["", "Overview", "1"],
  ["timeline", "Timeline", "2"],
  ["search", "Search", "3"],
  ["agents", "Agents", "4"],
  ["events", "Events", "5"],
  ["owners", "Owners", "6"],
  ["doctor", "Doctor", "7"],
];

const KEYS: [string, string][] = [
  ["1 … 7", "go to a view"],
  ["j / k", "next or previous row"],
  ["Enter", "open the row"],
  ["/", "filter or search"],
  ["x", "stop the process of the row"],
  ["n / N", "next or previous hit in a log"],
  ["g / G", "beginning or end of a log"],
  ["f", "follow a log"],
  ["w", "wrap the lines of a log"],
  ["Esc", "leave a field or a dialog"],
  ["?", "this list"],
];

function Shown() {
  const [first, ...rest] = route.value.parts;
  switch (first) {
    case undefined:
      return <OverviewView owner={route.value.query.get("owner")} />;
    case "process":
      return <ProcessView key={rest[0]} id={rest[0] ?? ""} tab={rest[1] ?? "log"} at={route.value.query.get("at")} />;
    case "timeline":
      return <TimelineView />;
    case "search":
      return <SearchView />;
    case "agents":
      return <AgentsView id={rest[0]} />;
    case "events":
      return <EventsView />;
    case "owners":
      return <OwnersView />;
    case "doctor":
      return <DoctorView />;
    default:
      return <p class="empty">There is no such page. <a href="#/">Overview</a></p>;
  }
}

function Keys() {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const open = () => dialog.current?.showModal();
    addEventListener("pinfold-keys", open);
    return () => removeEventListener("pinfold-keys", open);
  }, []);
  return (
    <dialog ref={dialog} aria-labelledby="keys-title">
      <h2 id="keys-title">Keys</h2>
      <dl class="keys">
        {KEYS.map(([key, what]) => (
          <div key={key}>
            <dt><kbd>{key}</kbd></dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <div class="row end">
        <button type="button" onClick={() => dialog.current?.close()}>Close</button>
      </div>
    </dialog>
  );
}

function onKey(event: KeyboardEvent): void {
  const target = event.target as HTMLElement;
  const typing = target.closest("input:not([type=range]), textarea, select, dialog, .xterm");
  if (event.key === "Escape" && target.matches("input, textarea, select")) target.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey || session.value.state !== "in") return;
  const view = VIEWS.find(([, , key]) => key === event.key);
  if (view) return go(`#/${view[0]}`);
  const rows = [...document.querySelectorAll<HTMLElement>("[data-row]")];
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const focus = (to: number) => {
    const row = rows[Math.max(0, Math.min(rows.length - 1, to))];
    (row?.matches("a, button") ? row : row?.querySelector<HTMLElement>("a, button"))?.focus();
    row?.scrollIntoView({ block: "nearest" });
  };
  const acts: Record<string, () => void> = {
    j: () => focus(at + 1),
    k: () => focus(at - 1),
    "/": () => document.querySelector<HTMLElement>("main input[type=search]")?.focus(),
    "?": () => dispatchEvent(new Event("pinfold-keys")),
    x: () => rows[at]?.dispatchEvent(new Event("pinfold-stop")),
  };
  const act = acts[event.key];
  if (act) {
    event.preventDefault();
    act();
  }
}

function Shell() {
  const inbox = useLoaded((abort) => get<Inbox>("/v1/inbox", { limit: 1 }, abort), 5000, []);
  const waiting = inbox.value ? inbox.value.permission + inbox.value.waiting_for_input + inbox.value.failed : 0;
  const hosted = useLoaded((abort) => get<{ agents: Agent[] }>("/v1/agents", { all: true }, abort), 5000, []);
  useEffect(() => {
    if (hosted.value) agents.value = hosted.value.agents;
  }, [hosted.value]);
  const here = route.value.parts[0] ?? "";
  const current = (view: string) => (here === view || (view === "" && here === "process") ? "page" : undefined);
  useEffect(() => {
    document.title = waiting > 0 ? `(${waiting}) pinfold` : "pinfold";
  }, [waiting]);
  const readOnly = session.value.state === "in" && session.value.readOnly;
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to content</a>
      <header>
        <a class="brand" href="#/"><img src="/assets/icon.svg" alt="" width="22" height="22" /> pinfold</a>
        <nav aria-label="Views">
          {VIEWS.map(([view, name]) => (
            <a key={view} href={`#/${view}`} aria-current={current(view)}>
              {name}
              {view === "" && waiting > 0 && <span class="count" aria-label={`${waiting} need you`}>{waiting}</span>}
            </a>
          ))}
        </nav>
        <div class="row tools">
          {readOnly && <span class="badge idle">read only</span>}
          <button type="button" class="plain" onClick={() => dispatchEvent(new Event("pinfold-keys"))}>Keys</button>
          <button type="button" class="plain" onClick={() => void signOut()}>Sign out</button>
        </div>
      </header>
      {!reachable.value && <p class="banner" role="alert">The daemon does not answer; trying again. If it was stopped, type <code>pinfold dashboard</code>.</p>}
      <main id="main" tabIndex={-1}><Shown /></main>
      <Keys />
      <Confirm />
      <div class="toast" role="status" aria-live="polite">{toast.value}</div>
    </>
  );
}

function SignedOut(props: { why: string }) {
  return (
    <main class="signed-out">
      <h1><img src="/assets/icon.svg" alt="" width="32" height="32" /> pinfold</h1>
      <p role="alert">{props.why}</p>
      <p>Type this in a terminal:</p>
      <pre>pinfold dashboard</pre>
    </main>
  );
}

function App() {
  const now = session.value;
  if (now.state === "checking") return <main class="signed-out"><h1>pinfold</h1><p>Signing in …</p></main>;
  return now.state === "out" ? <SignedOut why={now.why} /> : <Shell />;
}

addEventListener("keydown", onKey);
addEventListener("unhandledrejection", (event) => say(String((event.reason as Error)?.message ?? event.reason)));
void signIn().then(followEvents);
render(<App />, document.getElementById("app")!);
