// One process: its log, its living tree, its terminal, its use of CPU and memory, and its record.

import { useState } from "preact/hooks";
import { Actions } from "../actions";
import { get, send, useLoaded } from "../api";
import { agentOf, ago, bytes, cause, cpu, moment, outcome, span, title } from "../text";
import type { Process, Sample, TreeMember } from "../types";
import { address, Badge, Chart, Empty, mayAct, ownerAddress, Problem } from "../ui";
import { LogView } from "./log";
import { TerminalView } from "./terminal";

const LIVE = ["starting", "running", "lingering"];

export function ProcessView(props: { id: string; tab: string; at: string | null }) {
  const { value: process, error, reload } = useLoaded((abort) => get<Process>(`/v1/processes/${encodeURIComponent(props.id)}`, {}, abort), 2000, [props.id]);
  if (!process) return error ? <Problem text={error} /> : <p class="empty">Loading …</p>;
  const live = LIVE.includes(process.status);
  const tabs: [string, string][] = [["log", "Log"], ["tree", `Tree${process.tree.length ? ` (${process.tree.length})` : ""}`]];
  if (process.pty) tabs.push(["terminal", "Terminal"]);
  tabs.push(["details", "Details"]);
  const why = cause(process.cause);
  return (
    <article class="process">
      <div class="row top">
        <div class="grow">
          <h1>{title(process)} <Badge process={process} /></h1>
          {title(process) !== process.command && <p class="command"><code>{process.command}</code></p>}
          <p class="hint">
            {process.id} · owner <a href={ownerAddress(process.owner)}>{process.owner}</a> · {live ? `started ${ago(process.started_at ?? process.created_at)}` : `ended ${ago(process.finished_at)}`}
            {!live && process.outcome && <> · {outcome(process.outcome)}{why && ` (${why}${process.stopped_by ? ` by ${process.stopped_by}` : ""})`}</>}
          </p>
        </div>
        {live && <Samples id={process.id} />}
        <Actions process={process} reload={reload} />
      </div>
      <nav class="tabs" aria-label="Parts of this process">
        {tabs.map(([tab, name]) => (
          <a key={tab} href={address("process", process.id, tab)} aria-current={props.tab === tab ? "page" : undefined}>{name}</a>
        ))}
      </nav>
      {props.tab === "log" && <LogView process={process} at={props.at} />}
      {props.tab === "log" && live && <Input process={process} />}
      {props.tab === "tree" && <Tree process={process} />}
      {props.tab === "terminal" && process.pty && <TerminalView process={process} />}
      {props.tab === "details" && <Details process={process} />}
    </article>
  );
}

function Samples(props: { id: string }) {
  const { value } = useLoaded((abort) => get<{ samples: Sample[] }>(`/v1/processes/${props.id}/samples`, {}, abort), 2000, [props.id]);
  const samples = value?.samples ?? [];
  const last = samples.at(-1);
  if (!last) return null;
  return (
    <div class="row charts">
      <Chart label="CPU" now={cpu(last.millicpus)} tone="cpu" values={samples.map((sample) => sample.millicpus)} />
      <Chart label="Memory" now={bytes(last.memory_bytes)} tone="memory" values={samples.map((sample) => sample.memory_bytes)} />
    </div>
  );
}

/** Sends a line to a process that reads its input. */
function Input(props: { process: Process }) {
  const [text, setText] = useState("");
  const { process } = props;
  // What an agent reads is a protocol, which a line would break.
  if (!mayAct() || agentOf(process) || (process.stdin !== "open" && process.stdin !== "pipe" && !process.pty)) return null;
  const submit = async () => {
    await send("POST", `/v1/processes/${process.id}/input`, { text: `${text}${process.pty ? "\r" : "\n"}` });
    setText("");
  };
  return (
    <form class="row bar" onSubmit={(event) => { event.preventDefault(); void submit(); }}>
      <label for="input">Input</label>
      <input id="input" class="grow mono" value={text} onInput={(event) => setText(event.currentTarget.value)} placeholder="A line for the process" />
      <button type="submit">Send</button>
    </form>
  );
}

/** The living tree. Descendants that are alive after the leader exited are strays. */
function Tree(props: { process: Process }) {
  const { tree, pid, status } = props.process;
  if (tree.length === 0) return <Empty>No process of its tree is alive.</Empty>;
  const pids = new Set(tree.map((member) => member.pid));
  const roots = tree.filter((member) => !pids.has(member.ppid));
  const strays = status === "lingering";
  const mark = (member: TreeMember, depth: number) => {
    if (strays) return <span class="badge warn">stray</span>;
    if (member.pid === pid) return <span class="badge live">leader</span>;
    // Its parent exited, or it left on purpose: it is still in the tree, and is stopped with it.
    return depth === 0 ? <span class="badge idle">detached</span> : null;
  };
  const rows: [TreeMember, number][] = [];
  const walk = (member: TreeMember, depth: number) => {
    rows.push([member, depth]);
    if (rows.length < 2000) tree.filter((child) => child.ppid === member.pid && child !== member).forEach((child) => walk(child, depth + 1));
  };
  roots.forEach((member) => walk(member, 0));
  return (
    <section aria-label="Tree">
      {strays && <p class="warn-text">The leader has exited. These descendants are still running.</p>}
      <div class="scroll" tabIndex={0} role="group" aria-label="Living processes">
        <table>
          <thead><tr><th>PID</th><th>Command</th><th>State</th><th class="number">CPU time</th><th class="number">Memory</th><th>Ports</th></tr></thead>
          <tbody>
            {rows.map(([member, depth]) => (
              <tr key={member.pid}>
                <td class="mono">{member.pid}</td>
                <td class="mono wide"><span style={{ paddingLeft: `${depth * 1.2}em` }}>{depth > 0 && "└ "}{member.command}</span>{mark(member, depth)}</td>
                <td>{member.state}</td>
                <td class="number">{span(member.cpu_ms)}</td>
                <td class="number">{bytes(member.rss_bytes)}</td>
                <td>{member.ports.map((port) => <a key={port} href={`http://127.0.0.1:${port}/`} target="_blank" rel="noreferrer noopener">{port} </a>)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Details(props: { process: Process }) {
  const { process } = props;
  const agent = agentOf(process);
  const rows: [string, preact.ComponentChildren][] = [
    ["Command", <code>{process.command}</code>],
    ["Directory", <code>{process.cwd}</code>],
    ["Purpose", process.intent],
    ["Owner", process.parent ? `${process.owner} (parent ${process.parent})` : process.owner],
    ["Labels", Object.entries(process.labels).map(([name, value]) => `${name}=${value}`).join(", ")],
    ["Created", moment(process.created_at)],
    ["Started", moment(process.started_at)],
    ["Leader exited", moment(process.exited_at)],
    ["Finished", moment(process.finished_at)],
    ["Outcome", process.outcome && (process.outcome.kind === "failed_to_start" ? process.outcome.error : process.outcome.kind === "lost" ? process.outcome.evidence : outcome(process.outcome))],
    ["Cause", process.cause && (cause(process.cause) || "on its own")],
    ["Stopped by", process.stopped_by],
    ["Output", `${bytes(process.output.bytes)}${process.output.dropped ? `, ${bytes(process.output.dropped)} dropped` : ""}`],
    ["CPU time", span(process.usage.cpu_ms)],
    ["Most memory", bytes(process.usage.max_rss_bytes)],
    ["Most processes at once", String(process.usage.processes)],
    ["Ports", Object.entries(process.ports ?? {}).map(([name, port]) => `${name}=${port}`).join(", ")],
    ["Restarts", process.life && `${process.life.restart}, run ${process.life.number}`],
    ["Previous run", process.life?.previous && <a href={address("process", process.life.previous)}>{process.life.previous}</a>],
    ["Next run", process.life?.next && <a href={address("process", process.life.next)}>{process.life.next}</a>],
    ["Agent", agent && <a href={address("agents", agent.id)}>{title(process)}</a>],
    ["Note", process.note],
  ];
  return (
    <dl class="details">
      {rows.filter(([, value]) => value).map(([name, value]) => (
        <div key={name}><dt>{name}</dt><dd>{value}</dd></div>
      ))}
    </dl>
  );
}
