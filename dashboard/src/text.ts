// Quantities, times and outcomes as people read them.

import { computed, signal } from "@preact/signals";
import type { Agent, Outcome, Process } from "./types";

/** The label of a process that has the id of its agent. */
export const AGENT_LABEL = "pinfold.agent";

/** Hosted agents, kept up to date by the shell. */
export const agents = signal<Agent[]>([]);

interface Named {
  id?: string;
  process?: string | null;
  name?: string | null;
  command?: string;
  labels?: Record<string, string>;
}

/** Agents by their id and by the ids of their processes. */
const agentById = computed(() => new Map(agents.value.flatMap((agent) => [agent.id, ...agent.lives].map((id): [string, Agent] => [id, agent]))));

/** The agent that runs in a process. */
export function agentOf(process: Named): Agent | undefined {
  return agentById.value.get(process.labels?.[AGENT_LABEL] ?? process.process ?? process.id ?? "");
}

export function bytes(count: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (count >= 1024 && at < units.length - 1) {
    count /= 1024;
    at++;
  }
  return `${at === 0 || count >= 100 ? Math.round(count) : count.toFixed(1)} ${units[at]}`;
}

export function span(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

export function ago(time: string | null | undefined): string {
  if (!time) return "";
  const passed = Date.now() - Date.parse(time);
  return passed < 1000 ? "now" : `${span(passed)} ago`;
}

export function clock(time: string | null | undefined): string {
  return time ? new Date(time).toLocaleTimeString([], { hour12: false }) : "";
}

export function moment(time: string | null | undefined): string {
  return time ? new Date(time).toLocaleString([], { hour12: false }) : "";
}

export function outcome(outcome: Outcome | null | undefined): string {
  switch (outcome?.kind) {
    case "exited":
      return outcome.code === 0 ? "succeeded" : `exit code ${outcome.code}`;
    case "signaled":
      return `killed by ${outcome.name}${outcome.core_dumped ? " (core dumped)" : ""}`;
    case "failed_to_start":
      return "failed to start";
    case "lost":
      return "lost";
    default:
      return "";
  }
}

const CAUSES: Record<string, string> = {
  stop_requested: "stopped",
  time_limit: "time limit",
  idle_limit: "idle limit",
  out_of_memory: "out of memory",
  pids_limit: "process limit",
  cpu_time_limit: "CPU time limit",
  owner_ended: "owner ended",
};

/** Why it ended; empty if it ended by itself. */
export function cause(cause: string | null | undefined): string {
  return cause ? (CAUSES[cause] ?? "") : "";
}

export type Tone = "live" | "good" | "bad" | "warn" | "idle";

type Standing = Pick<Process, "id" | "labels" | "status" | "outcome" | "cause" | "paused" | "waiting_for_input" | "life">;

/** An agent reads its input between turns: that is no question to a person. */
function runningState(process: Standing): [string, Tone] {
  if (process.labels[AGENT_LABEL] === undefined) return process.waiting_for_input ? ["waits for input", "warn"] : ["running", "live"];
  const agent = agentOf(process);
  return agent ? agentState(agent) : ["running", "live"];
}

/** What an agent does, in a word. */
export function agentState(agent: Agent): [string, Tone] {
  if (agent.asks.length > 0) return ["asks permission", "warn"];
  return [agent.status, agent.status === "failed" ? "bad" : agent.status === "stopped" ? "idle" : "live"];
}

/** What became of a process, in a word, and how good that is. */
export function state(process: Standing): [string, Tone] {
  if (process.paused && process.status !== "finished") return ["paused", "warn"];
  if (process.life?.restarting_at) return ["restarting", "warn"];
  switch (process.status) {
    case "starting":
      return ["starting", "live"];
    case "running":
      return runningState(process);
    case "lingering":
      return ["strays left", "warn"];
    case "lost":
      return ["lost", "bad"];
    default: {
      const why = cause(process.cause);
      if (process.cause === "stop_requested" || process.cause === "owner_ended") return [why, "idle"];
      if (why) return [why, "bad"];
      const good = process.outcome?.kind === "exited" && process.outcome.code === 0;
      return [outcome(process.outcome) || "finished", good ? "good" : "bad"];
    }
  }
}

export function title(process: Named): string {
  const agent = agentOf(process);
  if (agent) return agent.name ?? `${agent.kind} agent ${agent.id}`;
  const label = process.labels?.[AGENT_LABEL];
  return process.name || (label && `agent ${label}`) || process.command || process.process || process.id || "";
}

export function cpu(millicpus: number | null | undefined): string {
  return millicpus === null || millicpus === undefined ? "" : `${(millicpus / 10).toFixed(millicpus < 100 ? 1 : 0)} %`;
}
