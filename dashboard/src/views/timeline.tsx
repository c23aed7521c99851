// All processes over time, by owner: when each ran, how it ended and why.

import { useState } from "preact/hooks";
import { get, useLoaded } from "../api";
import { cause, clock, outcome, span, state, title } from "../text";
import type { Process, ProcessList } from "../types";
import { address, Empty, Problem } from "../ui";

const RANGES: [string, number][] = [["5m", 300], ["15m", 900], ["1h", 3600], ["6h", 21600], ["24h", 86400], ["7d", 604800]];
/** Processes shown at once; the newest. */
const MAX_BARS = 500;

export function TimelineView() {
  const [range, setRange] = useState("15m");
  const [open, setOpen] = useState<string | null>(null);
  const seconds = RANGES.find(([name]) => name === range)?.[1] ?? 3600;
  const { value, error } = useLoaded(async (abort) => {
    const [live, ended] = await Promise.all([
      get<ProcessList>("/v1/processes", { status: "live", tree: false, limit: MAX_BARS }, abort),
      get<ProcessList>("/v1/processes", { finished_after: range, tree: false, limit: MAX_BARS }, abort),
    ]);
    const known = new Map([...live.processes, ...ended.processes].map((process) => [process.id, process]));
    return { processes: [...known.values()], total: live.total + ended.total, now: Date.now() };
  }, 5000, [range]);
  const now = value?.now ?? Date.now();
  const begin = now - seconds * 1000;
  const owners = new Map<string, Process[]>();
  for (const process of value?.processes ?? []) {
    owners.set(process.owner, [...(owners.get(process.owner) ?? []), process]);
  }
  const marks = [0, 0.25, 0.5, 0.75].map((part) => begin + part * seconds * 1000);
  return (
    <section aria-labelledby="timeline-title">
      <div class="row">
        <h1 id="timeline-title">Timeline</h1>
        <span class="grow" />
        <label for="range">Last</label>
        <select id="range" value={range} onChange={(event) => setRange(event.currentTarget.value)}>
          {RANGES.map(([name]) => <option key={name} value={name}>{name}</option>)}
        </select>
      </div>
      <Problem text={error} />
      {value && value.total > value.processes.length && <p class="hint">The newest {value.processes.length} of {value.total} processes.</p>}
      {value && value.processes.length === 0 && <Empty>Nothing ran in the last {range}.</Empty>}
      {owners.size > 0 && (
        <div class="timeline">
          <div class="ticks" aria-hidden="true">{marks.map((mark) => <span key={mark}>{clock(new Date(mark).toISOString())}</span>)}</div>
          {[...owners.entries()].sort(([one], [other]) => one.localeCompare(other)).map(([owner, list]) => (
            <section key={owner} aria-label={`Owner ${owner}`}>
              <h2>{owner} <span class="hint">{list.length}</span></h2>
              <ul>
                {list.sort((one, other) => Date.parse(one.created_at) - Date.parse(other.created_at)).map((process) => <Bar key={process.id} process={process} begin={begin} now={now} open={open} setOpen={setOpen} />)}
              </ul>
            </section>
          ))}
        </div>
      )}
      <p class="legend hint">
        <span class="swatch live" /> running <span class="swatch good" /> succeeded <span class="swatch bad" /> failed <span class="swatch idle" /> stopped <span class="swatch warn" /> strays or waiting
      </p>
    </section>
  );
}

function Bar(props: { process: Process; begin: number; now: number; open: string | null; setOpen: (id: string) => void }) {
  const { process, begin, now } = props;
  const from = Math.max(begin, Date.parse(process.started_at ?? process.created_at));
  const to = process.finished_at ? Date.parse(process.finished_at) : now;
  const exited = process.exited_at && process.finished_at !== process.exited_at ? Date.parse(process.exited_at) : null;
  const place = (time: number) => Math.max(0, Math.min(100, ((time - begin) / (now - begin)) * 100));
  const left = place(from);
  const width = Math.max(0.4, place(to) - left);
  const [word, tone] = state(process);
  const open = props.open === process.id;
  const about = `about-${process.id}`;
  return (
    <li data-row class={open ? "open" : ""} onFocusCapture={() => props.setOpen(process.id)}>
      <a class="label" href={address("process", process.id)} aria-describedby={open ? about : undefined}>{title(process)}</a>
      {/* The keyboard opens the line with the focus of the link; this is for touch and the mouse. */}
      <button type="button" class="lane" tabIndex={-1} aria-expanded={open} aria-label={`${title(process)}: how it ended`} onClick={() => props.setOpen(process.id)}>
        <span class={`life ${tone}`} style={{ left: `${left}%`, width: `${width}%` }} />
        {exited !== null && place(to) - place(exited) > 0.5 && <span class="life warn lingering" style={{ left: `${place(exited)}%`, width: `${Math.max(0.2, place(to) - place(exited))}%` }} />}
      </button>
      <span class="end">{word}</span>
      {open && <p class="about" id={about}>{exactly(process, to)}</p>}
    </li>
  );
}

/** How a process ended and why, in full. */
function exactly(process: Process, to: number): string {
  const { outcome: ended } = process;
  const started = process.started_at ?? process.created_at;
  const words = [state(process)[0]];
  if (ended?.kind === "failed_to_start") words.push(ended.error);
  else if (ended?.kind === "lost") words.push(ended.evidence);
  else if (ended) words.push(outcome(ended));
  if (process.cause) words.push(`${cause(process.cause) || "on its own"}${process.stopped_by ? ` by ${process.stopped_by}` : ""}`);
  words.push(`${clock(started)} to ${process.finished_at ? clock(process.finished_at) : "now"} (${span(to - Date.parse(started))})`, process.id);
  return [...new Set(words)].join(" · ");
}
