// The objects of `/v1` that the dashboard shows; docs/openapi.json has them all.

export type Status = "starting" | "running" | "lingering" | "finished" | "lost";

export type Outcome =
  | { kind: "exited"; code: number }
  | { kind: "signaled"; signal: number; name: string; core_dumped: boolean }
  | { kind: "failed_to_start"; step: string; error: string }
  | { kind: "lost"; evidence: string };

export interface TreeMember {
  pid: number;
  ppid: number;
  command: string;
  state: string;
  cpu_ms: number;
  rss_bytes: number;
  ports: number[];
}

export interface Sample {
  at: string;
  millicpus: number | null;
  memory_bytes: number;
  processes: number;
}

export interface Process {
  id: string;
  name: string | null;
  command: string;
  cwd: string;
  owner: string;
  parent: string | null;
  intent: string | null;
  labels: Record<string, string>;
  stdin: string;
  pty?: { rows: number; cols: number };
  waiting_for_input: boolean | null;
  status: Status;
  paused: boolean;
  pid: number | null;
  created_at: string;
  started_at: string | null;
  exited_at: string | null;
  finished_at: string | null;
  outcome: Outcome | null;
  cause: string | null;
  stopped_by: string | null;
  tree: TreeMember[];
  output: { bytes: number; retained_from: number; dropped: number; closed: boolean; last_line?: string; last_output_at?: string };
  usage: { cpu_ms: number; max_rss_bytes: number; processes: number };
  ready?: { state: string };
  ports?: Record<string, number>;
  life?: Life;
  limits?: Record<string, number>;
  note?: string;
  sample?: Sample;
}

/** Its place in the chain of its restarts, if it has a restart policy. */
export interface Life {
  restart: string;
  number: number;
  previous?: string | null;
  next?: string | null;
  restarting_at?: string | null;
  awaits_turn: boolean;
}

export interface ProcessList {
  processes: Process[];
  total: number;
  next: string | null;
  notes?: string[];
}

export interface Ask {
  id: string;
  turn: number | null;
  kind: string;
  what: string;
  detail: unknown;
}

export interface InboxItem {
  kind: "permission" | "waiting_for_input" | "failed";
  at?: string | null;
  seen: boolean;
  seq?: number;
  owner: string;
  agent?: string;
  process?: string;
  name?: string | null;
  command?: string;
  text?: string;
  cursor?: number;
  ask?: Ask;
  outcome?: Outcome;
  cause?: string;
}

export interface Inbox {
  items: InboxItem[];
  waiting_for_input: number;
  permission: number;
  failed: number;
  seen: number;
  latest: number;
}

export interface Event {
  seq: number;
  kind: string;
  process: string;
  owner: string;
  at: string;
  command: string;
  outcome?: Outcome | null;
  cause?: string | null;
  cursor?: number | null;
  text?: string | null;
}

export interface Agent {
  id: string;
  name: string | null;
  kind: string;
  status: string;
  fault: { code: string; message: string } | null;
  owner: string;
  cwd: string;
  model: string | null;
  mode: string;
  process: string | null;
  /** The ids of its processes, oldest first. */
  lives: string[];
  turn: number | null;
  queued: number;
  turns: number;
  asks: Ask[];
  notices: string[];
  created_at: string;
  ended_at: string | null;
}

export interface Turn {
  number: number;
  status: string;
  prompt: string;
  text: string | null;
  cause: string | null;
  usage: { input_tokens: number; cached_input_tokens: number; output_tokens: number } | null;
  tools: { id: string; name: string; input: string; output: string | null; exit_code: number | null; failed: boolean | null }[];
  tools_left_out: number;
  process: string | null;
  queued_at: string;
  started_at: string | null;
  ended_at: string | null;
}

export interface Owner {
  owner: string;
  parent: string | null;
  live: number;
  last_contact: string | null;
}

export interface Token {
  id: string;
  owner: string | null;
  label: string | null;
  created_at: string;
  expires_at: string | null;
}

export interface Health {
  status: string;
  version: string;
  pid: number;
  home: string;
  tcp: string | null;
  started_at: string;
  live: number;
  containment: string;
  troubles: string[];
  notes?: string[];
}

export interface Finding {
  level: "good" | "note" | "bad";
  topic: string;
  text: string;
  remedy?: string;
}

export interface Hit {
  process: string;
  name: string | null;
  owner: string;
  status: Status;
  cursor: number;
  text: string;
}

export interface SearchPage {
  hits: Hit[];
  next: string | null;
  stopped_by: string | null;
  searched_processes: number;
  searched_bytes: number;
}
