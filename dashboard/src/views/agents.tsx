// Hosted agents: what they ask, their turns, and giving them the next one.

import { useState } from "preact/hooks";
import { get, send, useLoaded } from "../api";
import { agentState, ago, span } from "../text";
import type { Agent, Turn } from "../types";
import { Act, address, confirm, Empty, Problem } from "../ui";
import { Answer } from "./overview";

export function AgentsView(props: { id: string | undefined }) {
  return props.id ? <AgentView key={props.id} id={props.id} /> : <AgentList />;
}

/** What an agent does, as a badge. */
function Standing(props: { agent: Agent }) {
  const [word, tone] = agentState(props.agent);
  return <span class={`badge ${tone}`}>{word}</span>;
}

function AgentList() {
  const [all, setAll] = useState(false);
  const { value, error } = useLoaded((abort) => get<{ agents: Agent[]; more: number }>("/v1/agents", { all: all || undefined }, abort), 3000, [all]);
  return (
    <section aria-labelledby="agents-title">
      <div class="row">
        <h1 id="agents-title">Agents</h1>
        <span class="grow" />
        <label class="check"><input type="checkbox" checked={all} onChange={(event) => setAll(event.currentTarget.checked)} /> Ended too</label>
      </div>
      <Problem text={error} />
      {value && value.agents.length === 0 && <Empty>No agent is hosted. Try <code>pinfold agent run codex</code></Empty>}
      <ul class="cards">
        {value?.agents.map((agent) => (
          <li key={agent.id} data-row>
            <a href={address("agents", agent.id)}>
              <Standing agent={agent} />
              <strong>{agent.name ?? agent.id}</strong>
              <span>{agent.kind}{agent.model ? ` · ${agent.model}` : ""}</span>
              <span class="hint">{agent.turns} turns{agent.queued ? `, ${agent.queued} queued` : ""} · {agent.owner} · {ago(agent.created_at)}</span>
            </a>
          </li>
        ))}
      </ul>
    </section>
  );
}

function AgentView(props: { id: string }) {
  const path = `/v1/agents/${encodeURIComponent(props.id)}`;
  const agent = useLoaded((abort) => get<Agent>(path, {}, abort), 2000, [props.id]);
  const turns = useLoaded((abort) => latestTurns(path, agent.value?.turns ?? 0, abort), 2000, [props.id, agent.value?.turns]);
  const [prompt, setPrompt] = useState("");
  if (!agent.value) return agent.error ? <Problem text={agent.error} /> : <p class="empty">Loading …</p>;
  const it = agent.value;
  const over = it.status === "stopped" || it.status === "failed";
  const give = async () => {
    await send("POST", `${path}/turns`, { text: prompt });
    setPrompt("");
    agent.reload();
  };
  const stop = async () => {
    if (!(await confirm(`Stop ${it.name ?? it.id}?`, <p>The agent and everything it started are stopped.</p>, "Stop it"))) return;
    await send("POST", `${path}/stop`, { by: "dashboard" });
    agent.reload();
  };
  return (
    <article>
      <div class="row top">
        <div class="grow">
          <h1>{it.name ?? it.id} <Standing agent={it} /></h1>
          <p class="hint">{it.kind}{it.model ? ` · ${it.model}` : ""} · {it.owner} · {it.cwd} {it.process && <a href={address("process", it.process)}>its process</a>}</p>
        </div>
        {!over && (
          <div class="row">
            {it.turn !== null && <Act do={async () => { await send("POST", `${path}/interrupt`, { by: "dashboard" }); agent.reload(); }}>Interrupt</Act>}
            <Act do={stop} class="danger">Stop</Act>
          </div>
        )}
      </div>
      {it.fault && <Problem text={it.fault.message} />}
      {it.asks.length > 0 && (
        <section class="inbox" aria-label="Questions">
          <h2>It asks</h2>
          <ul>
            {it.asks.map((ask) => (
              <li key={ask.id} data-row>
                <span class="badge warn">{ask.kind}</span>
                <code class="grow text">{ask.what}</code>
                <Answer agent={it.id} ask={ask.id} what={ask.what} reload={agent.reload} />
              </li>
            ))}
          </ul>
        </section>
      )}
      {it.notices.map((notice) => <p key={notice} class="hint">{notice}</p>)}
      <Problem text={turns.error} />
      <ol class="turns" aria-label="Turns">
        {turns.value?.map((turn) => <TurnView key={turn.number} turn={turn} />)}
      </ol>
      {turns.value?.length === 0 && <Empty>It had no turn yet.</Empty>}
      {!over && (
        <form class="prompt" onSubmit={(event) => event.preventDefault()}>
          <label for="prompt">Next turn</label>
          <textarea id="prompt" rows={3} value={prompt} onInput={(event) => setPrompt(event.currentTarget.value)} />
          <div class="row end"><Act do={give} class="main">Send</Act></div>
        </form>
      )}
    </article>
  );
}

/** The latest hundred turns. */
async function latestTurns(path: string, count: number, abort: AbortSignal): Promise<Turn[]> {
  const page = await get<{ turns: Turn[] }>(`${path}/turns`, { after: Math.max(0, count - 100) || undefined }, abort);
  return page.turns;
}

function TurnView(props: { turn: Turn }) {
  const { turn } = props;
  const good = turn.status === "completed" ? "good" : turn.status === "running" ? "live" : turn.status === "queued" ? "idle" : "bad";
  const took = turn.started_at ? span((turn.ended_at ? Date.parse(turn.ended_at) : Date.now()) - Date.parse(turn.started_at)) : "";
  return (
    <li>
      <p><span class={`badge ${good}`}>{turn.status}</span> <span class="hint">turn {turn.number} {took && `· ${took}`} {turn.usage && `· ${turn.usage.input_tokens + turn.usage.output_tokens} tokens`}</span></p>
      <blockquote>{turn.prompt}</blockquote>
      {turn.tools.length > 0 && (
        <details>
          <summary>{turn.tools.length + turn.tools_left_out} tool calls</summary>
          <ul class="tools-used">
            {turn.tools.map((tool) => (
              <li key={tool.id}>
                <strong>{tool.name}</strong> {tool.failed && <span class="badge bad">failed</span>} <code>{tool.input}</code>
                {tool.output && <pre tabIndex={0}>{tool.output}</pre>}
              </li>
            ))}
          </ul>
        </details>
      )}
      {turn.cause && <Problem text={turn.cause} />}
      {turn.text && <p class="answer">{turn.text}</p>}
    </li>
  );
}
