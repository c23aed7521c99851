// The event log, newest first.

import { useState } from "preact/hooks";
import { get, useLoaded } from "../api";
import { cause, moment, outcome } from "../text";
import type { Event } from "../types";
import { address, Empty, Problem } from "../ui";

const KINDS = ["started", "exited", "finished", "lost", "matched", "waiting_for_input", "heartbeat", "handed_over", "ready", "not_ready", "gave_up"];
const SHOWN = 200;

/** The latest events: the log is read from its end backwards, in steps, until there are enough. */
async function latest(kinds: string, abort: AbortSignal): Promise<Event[]> {
  const end = (await get<{ next: number }>("/v1/events", { after: "latest" }, abort)).next;
  for (let reach = 500; ; reach *= 8) {
    const after = Math.max(0, end - reach);
    const page = await get<{ events: Event[] }>("/v1/events", { after, limit: 1000, kinds }, abort);
    if (page.events.length >= SHOWN || after === 0 || reach > 100_000) return page.events.slice(-SHOWN).reverse();
  }
}

export function EventsView() {
  const [kind, setKind] = useState("");
  const { value, error } = useLoaded((abort) => latest(kind, abort), 10000, [kind]);
  return (
    <section aria-labelledby="events-title">
      <div class="row">
        <h1 id="events-title">Events</h1>
        <span class="grow" />
        <label for="kind">Kind</label>
        <select id="kind" value={kind} onChange={(event) => setKind(event.currentTarget.value)}>
          <option value="">all</option>
          {KINDS.map((name) => <option key={name} value={name}>{name.replaceAll("_", " ")}</option>)}
        </select>
      </div>
      <Problem text={error} />
      {value && value.length === 0 && <Empty>No event yet.</Empty>}
      {value && value.length > 0 && (
        <div class="scroll" tabIndex={0} role="group" aria-label="Events">
          <table>
            <thead><tr><th class="number">No.</th><th>Time</th><th>Event</th><th>Process</th><th>Owner</th><th>What</th></tr></thead>
            <tbody>
              {value.map((event) => (
                <tr key={event.seq} data-row>
                  <td class="number">{event.seq}</td>
                  <td class="nowrap">{moment(event.at)}</td>
                  <td class="nowrap">{event.kind.replaceAll("_", " ")}</td>
                  <td class="mono wide"><a href={address("process", event.process)}>{event.command}</a></td>
                  <td>{event.owner}</td>
                  <td>{[outcome(event.outcome), cause(event.cause), event.text].filter(Boolean).join(" · ")}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
