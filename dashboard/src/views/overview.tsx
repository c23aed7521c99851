// The overview: what needs a person, and every process.

import { useEffect, useRef, useState } from "preact/hooks";
import { stop } from "../actions";
import { get, message, send, useLoaded } from "../api";
import { ago, bytes, cause, cpu, outcome, title } from "../text";
import type { Inbox, InboxItem, Process, ProcessList } from "../types";
import { Act, address, Badge, Empty, Problem, say } from "../ui";

/** Rows shown until more are asked for. */
const PAGE = 100;

export function OverviewView() {
  const [filter, setFilter] = useState("");
  const [most, setMost] = useState(PAGE);
  const live = useLoaded((abort) => get<ProcessList>("/v1/processes", { status: "live", usage: true, tree: false, limit: 2000 }, abort), 2000, []);
  const ended = useLoaded((abort) => get<ProcessList>("/v1/processes", { status: "finished,lost", tree: false, limit: 50 }, abort), 15000, []);
  const processes = [...(live.value?.processes ?? []), ...(ended.value?.processes ?? [])];
  const wanted = filter.trim().toLowerCase();
  const shown = wanted ? processes.filter((process) => matches(process, wanted)) : processes;
  const reload = () => {
    live.reload();
    ended.reload();
  };
  return (
    <>
      <InboxView />
      <section aria-labelledby="processes-title">
        <div class="row">
          <h1 id="processes-title">Processes</h1>
          <span class="hint">{live.value ? `${live.value.total} live, ${ended.value?.total ?? 0} ended` : ""}</span>
          <span class="grow" />
          <label class="sr" for="filter">Filter</label>
          <input id="filter" type="search" placeholder="Filter by name, command, owner, label" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />
        </div>
        <Problem text={live.error} />
        {live.value && processes.length === 0 && <Empty>Nothing was started yet. Try <code>pinfold run -d --name web 'npm run dev'</code></Empty>}
        {processes.length > 0 && shown.length === 0 && <Empty>No process fits “{filter}”.</Empty>}
        <ul class="processes">
          {shown.slice(0, most).map((process) => <ProcessRow key={process.id} process={process} reload={reload} />)}
        </ul>
        {shown.length > most && <p><button type="button" onClick={() => setMost(most + 500)}>Show more ({shown.length - most})</button></p>}
      </section>
    </>
  );
}

function matches(process: Process, wanted: string): boolean {
  const labels = Object.entries(process.labels).map(([name, value]) => `${name}=${value}`);
  return [process.id, process.name ?? "", process.command, process.owner, ...labels].some((text) => text.toLowerCase().includes(wanted));
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
  return (
    <li ref={row} data-row>
      <a href={address("process", process.id)}>
        <span class="name"><Badge process={process} /> <strong>{title(process)}</strong></span>
        <span class="last mono">{process.output.last_line ?? (process.name ? process.command : "")}</span>
        <span class="owner">{process.owner}</span>
        <span class="use">{process.sample ? `${cpu(process.sample.millicpus)} ${bytes(process.sample.memory_bytes)}` : ""}</span>
        <span class="age">{ago(isLive ? process.started_at ?? process.created_at : process.finished_at)}</span>
      </a>
    </li>
  );
}

/** What waits for a person: agents that ask, terminals that wait, and failures not seen yet. */
export function InboxView() {
  const inbox = useLoaded((abort) => get<Inbox>("/v1/inbox", { limit: 50 }, abort), 3000, []);
  const items = inbox.value?.items ?? [];
  if (inbox.error) return <Problem text={inbox.error} />;
  if (items.length === 0) return null;
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
      <span class={`badge ${tone}`}>{kind}</span>
      <a href={target}><strong>{title(item)}</strong></a>
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
