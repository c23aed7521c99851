// The overview: what needs a person, and every process.

import { useEffect, useRef, useState } from "preact/hooks";
import { stop } from "../actions";
import { get, message, send, useLoaded } from "../api";
import { agentOf, ago, bytes, cause, cpu, outcome, title } from "../text";
import type { Agent, Inbox, InboxItem, Process, ProcessList } from "../types";
import { Act, address, Badge, Empty, Problem, remember, route, say } from "../ui";

/** Rows shown until more are asked for, and by how many more. */
const PAGE = 100;
const MORE = 500;
/** Ended processes that are read at first, and with every look further. */
const ENDED = 50;
const OLDER = 500;
/** Ended processes kept at once. */
const MAX_ENDED = 20_000;
/** Live processes that are read. */
const MAX_LIVE = 2000;
/** What needs a person, at most. */
const MAX_ITEMS = 50;

interface Ended {
  processes: Process[];
  total: number;
  /** Where older ones are read on; `null` if there are none. */
  next: string | null;
  older: () => Promise<void>;
  error: string | undefined;
  reload: () => void;
}

/** The latest ended processes, newest first, and older ones when they are asked for. */
function useEnded(owner: string | null): Ended {
  const known = useRef(new Map<string, Process>());
  const [older, setOlder] = useState<string | null>();
  const hasOlder = useRef(false);
  const query = { status: "finished,lost", owner, tree: false };
  const latest = useLoaded(async (abort) => {
    const page = await get<ProcessList>("/v1/processes", { ...query, limit: ENDED }, abort);
    const oldest = page.next === null ? "" : (page.processes.at(-1)?.created_at ?? "");
    for (const [id, process] of known.current) {
      // What is newer than the end of this page and is not in it was removed.
      if (!hasOlder.current || Date.parse(process.created_at) > (oldest ? Date.parse(oldest) : 0)) known.current.delete(id);
    }
    page.processes.forEach((process) => known.current.set(process.id, process));
    return page;
  }, 15000, [owner]);
  const read = async () => {
    const page = await get<ProcessList>("/v1/processes", { ...query, limit: OLDER, page: older ?? latest.value?.next });
    page.processes.forEach((process) => known.current.set(process.id, process));
    hasOlder.current = true;
    setOlder(known.current.size >= MAX_ENDED ? null : page.next);
  };
  useEffect(() => {
    known.current.clear();
    hasOlder.current = false;
    setOlder(undefined);
  }, [owner]);
  const processes = [...known.current.values()].sort((one, other) => Date.parse(other.created_at) - Date.parse(one.created_at));
  const next = older === undefined ? (latest.value?.next ?? null) : older;
  return { processes, total: latest.value?.total ?? 0, next, older: read, error: latest.error, reload: latest.reload };
}

export function OverviewView(props: { owner: string | null }) {
  const { owner } = props;
  const [filter, setFilter] = useState(route.value.query.get("filter") ?? "");
  const [most, setMost] = useState(PAGE);
  const live = useLoaded((abort) => get<ProcessList>("/v1/processes", { status: "live", owner, usage: true, tree: false, limit: MAX_LIVE }, abort), 2000, [owner]);
  const ended = useEnded(owner);
  const processes = [...(live.value?.processes ?? []), ...ended.processes];
  const wanted = filter.trim().toLowerCase();
  const shown = wanted ? processes.filter((process) => matches(process, wanted)) : processes;
  const hidden = Math.max(0, ended.total - ended.processes.length);
  const type = (text: string) => {
    setFilter(text);
    remember({ owner, filter: text });
  };
  const reload = () => {
    live.reload();
    ended.reload();
  };
  const more = async () => {
    if (shown.length > most) return setMost(most + MORE);
    await ended.older();
    setMost(most + MORE);
  };
  const left = shown.length > most || ended.next !== null;
  return (
    <>
      <InboxView />
      <section aria-labelledby="processes-title">
        <div class="row">
          <h1 id="processes-title">Processes</h1>
          <span class="hint">{live.value ? `${live.value.total} live, ${ended.total} ended` : ""}</span>
          {owner !== null && <a class="chip" href="#/" aria-label={`Only owner ${owner}: show all owners`}>owner {owner} <span aria-hidden="true">✕</span></a>}
          <span class="grow" />
          <label class="sr" for="filter">Filter by name, command, owner, label or last line</label>
          <input id="filter" type="search" placeholder="Filter" value={filter} onInput={(event) => type(event.currentTarget.value)} />
        </div>
        {wanted && (
          <p class="hint" role="status">
            {shown.length} of {processes.length} processes: name, command, owner, label or last line has “{filter.trim()}”.
            {hidden > 0 && ` The ${hidden.toLocaleString()} oldest ended ones are not loaded.`}
          </p>
        )}
        <Problem text={live.error ?? ended.error} />
        {live.value && processes.length === 0 && ended.total === 0 && <Empty>{owner === null ? <>Nothing was started yet. Try <code>pinfold run -d --name web 'npm run dev'</code></> : <>Owner {owner} has no process.</>}</Empty>}
        {processes.length > 0 && shown.length === 0 && <Empty>No process fits.</Empty>}
        {shown.length > 0 && (
          <div class="processes">
            <div class="heads" aria-hidden="true"><span>State</span><span>Name</span><span>Last line</span><span>Owner</span><span class="number">CPU</span><span class="number">Memory</span><span class="number">When</span></div>
            <ul>{shown.slice(0, most).map((process) => <ProcessRow key={process.id} process={process} reload={reload} />)}</ul>
          </div>
        )}
        {(live.value?.total ?? 0) > MAX_LIVE && <p class="hint">The newest {MAX_LIVE} live processes are shown.</p>}
        {processes.length > 0 && left && <p><button type="button" onClick={() => void more().catch((error) => say(message(error)))}>{shown.length > most || !wanted ? "Show more" : "Look through older ones"} ({(Math.max(0, shown.length - most) + hidden).toLocaleString()})</button></p>}
      </section>
    </>
  );
}

function matches(process: Process, wanted: string): boolean {
  const labels = Object.entries(process.labels).map(([name, value]) => `${name}=${value}`);
  const texts = [process.id, title(process), process.command, process.owner, process.output.last_line ?? "", ...labels];
  return texts.some((text) => text.toLowerCase().includes(wanted));
}

/** The process of an agent speaks a protocol: what the agent does is shown instead. */
function lastLine(process: Process, agent: Agent | undefined): string {
  if (!agent) return process.output.last_line ?? (process.name ? process.command : "");
  if (agent.asks[0]) return agent.asks[0].what;
  return `${agent.kind} agent, ${agent.turn === null ? `${agent.turns} turns` : `turn ${agent.turn} is running`}`;
}

function ProcessRow(props: { process: Process; reload: () => void }) {
  const { process } = props;
  const row = useRef<HTMLLIElement>(null);
  useEffect(() => {
    const ask = () => void stop(process, "stop").then(props.reload, (error) => say(message(error)));
    const element = row.current;
    element?.addEventListener("pinfold-stop", ask);
    return () => element?.removeEventListener("pinfold-stop", ask);
  });
  const isLive = process.status !== "finished" && process.status !== "lost";
  const agent = agentOf(process);
  return (
    <li ref={row} data-row>
      <a href={agent && isLive ? address("agents", agent.id) : address("process", process.id)}>
        <span class="state"><Badge process={process} /></span>
        <strong class="name">{title(process)}</strong>
        <span class="last mono">{lastLine(process, agent)}</span>
        <span class="owner">{process.owner}</span>
        <span class="number">{cpu(process.sample?.millicpus)}</span>
        <span class="number">{process.sample ? bytes(process.sample.memory_bytes) : ""}</span>
        <span class="number age">{ago(isLive ? process.started_at ?? process.created_at : process.finished_at)}</span>
      </a>
    </li>
  );
}

/** What waits for a person: agents that ask, terminals that wait, and failures not seen yet. */
export function InboxView() {
  const inbox = useLoaded((abort) => get<Inbox>("/v1/inbox", { limit: MAX_ITEMS }, abort), 3000, []);
  const items = inbox.value?.items ?? [];
  if (inbox.error) return <Problem text={inbox.error} />;
  if (items.length === 0) return null;
  const total = inbox.value!.permission + inbox.value!.waiting_for_input + inbox.value!.failed;
  const seen = async () => {
    await send("POST", "/v1/inbox/seen", { through: inbox.value!.latest });
    inbox.reload();
  };
  return (
    <section class="inbox" aria-labelledby="inbox-title">
      <div class="row">
        <h1 id="inbox-title">Needs you</h1>
        <span class="grow" />
        {inbox.value!.failed > 0 && <Act do={seen}>Mark failures as seen</Act>}
      </div>
      <ul>
        {items.map((item, at) => <Item key={`${item.kind}${item.agent ?? item.process}${item.ask?.id ?? item.seq ?? at}`} item={item} reload={inbox.reload} />)}
      </ul>
      {total > items.length && <p class="hint">and {total - items.length} more</p>}
    </section>
  );
}

const KINDS: Record<InboxItem["kind"], [string, string]> = {
  permission: ["asks permission", "warn"],
  waiting_for_input: ["waits for input", "warn"],
  failed: ["failed", "bad"],
};

function Item(props: { item: InboxItem; reload: () => void }) {
  const { item } = props;
  const [kind, tone] = KINDS[item.kind];
  const target = item.agent ? address("agents", item.agent) : address("process", item.process ?? "");
  const why = cause(item.cause) || outcome(item.outcome);
  return (
    <li data-row>
      <span class="state"><span class={`badge ${tone}`}>{kind}</span></span>
      <a class="name" href={target}><strong>{title(item)}</strong></a>
      <span class="mono grow text">{item.text}</span>
      <span class="hint">{[why, item.owner, ago(item.at)].filter(Boolean).join(" · ")}</span>
      {item.kind === "permission" && item.agent && item.ask && <Answer agent={item.agent} ask={item.ask.id} what={item.ask.what} reload={props.reload} />}
      {item.kind === "waiting_for_input" && item.process && <Reply process={item.process} reload={props.reload} />}
    </li>
  );
}

/** Allow or deny what an agent asks for. */
export function Answer(props: { agent: string; ask: string; what: string; reload: () => void }) {
  const answer = (verdict: "allow" | "deny") => async () => {
    await send("POST", `/v1/agents/${props.agent}/answer`, { ask: props.ask, verdict });
    props.reload();
  };
  return (
    <span class="row">
      <Act do={answer("allow")} label={`Allow ${props.what}`} done="Allowed">Allow</Act>
      <Act do={answer("deny")} class="danger" label={`Deny ${props.what}`} done="Denied">Deny</Act>
    </span>
  );
}

function Reply(props: { process: string; reload: () => void }) {
  const [text, setText] = useState("");
  const reply = async () => {
    await send("POST", `/v1/processes/${props.process}/input`, { text: `${text}\r` });
    setText("");
    props.reload();
  };
  return (
    <form class="row" onSubmit={(event) => { event.preventDefault(); void reply().catch((error) => say(message(error))); }}>
      <label class="sr" for={`reply-${props.process}`}>Reply</label>
      <input id={`reply-${props.process}`} class="mono" value={text} placeholder="Type a line" onInput={(event) => setText(event.currentTarget.value)} />
      <Act do={reply}>Send</Act>
    </form>
  );
}
