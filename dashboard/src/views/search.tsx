// Search over the output of every process, live and ended. The address holds the search, so that Back and a reload come back to it.

import { useEffect, useRef, useState } from "preact/hooks";
import { get, message, queryText } from "../api";
import { bytes, title } from "../text";
import type { Hit, SearchPage } from "../types";
import { address, Empty, go, Marked, Problem, route } from "../ui";

/** What is searched for, as in the address. */
interface Search {
  for: string;
  regex: boolean;
  owner: string;
  status: string;
  /** `key=value`, several with spaces between them. */
  label: string;
  /** Processes created in the last so much time, or `between` two times. */
  created: string;
  from: string;
  to: string;
}

interface Results {
  search: Search;
  hits: Hit[];
  next: string | null;
  processes: number;
  bytes: number;
}

/** Pages without a hit that are read on before asking whether to go on. */
const MAX_EMPTY_PAGES = 10;
const SPANS: [string, string][] = [["", "any time"], ["15m", "in the last 15 min"], ["1h", "in the last hour"], ["24h", "in the last 24 h"], ["7d", "in the last 7 days"], ["between", "between …"]];

function readSearch(query: URLSearchParams): Search {
  const text = (name: string) => query.get(name) ?? "";
  return { for: text("for"), regex: query.has("regex"), owner: text("owner"), status: text("status"), label: text("label"), created: text("created"), from: text("from"), to: text("to") };
}

function searchAddress(search: Search): string {
  const between = search.created === "between";
  return `#/search${queryText({ ...search, regex: search.regex || undefined, from: between ? search.from : "", to: between ? search.to : "" })}`;
}

/** The query of `/v1/search`. */
function apiQuery(search: Search): Record<string, unknown> {
  const time = (text: string) => (text ? new Date(text).toISOString() : "");
  const between = search.created === "between";
  return {
    pattern: search.for,
    literal: !search.regex,
    ignore_case: !search.regex,
    owner: search.owner,
    status: search.status,
    label: search.label.split(/\s+/),
    created_after: between ? time(search.from) : search.created,
    created_before: between ? time(search.to) : "",
    limit: 200,
    timeout: "5s",
  };
}

export function SearchView() {
  const asked = route.value.query.toString();
  const [form, setForm] = useState(() => readSearch(route.value.query));
  const [results, setResults] = useState<Results>();
  const [error, setError] = useState<string>();
  const [busy, setBusy] = useState(false);
  const running = useRef<AbortController | null>(null);
  const run = async (search: Search, before?: Results) => {
    running.current?.abort();
    const abort = (running.current = new AbortController());
    setBusy(true);
    setError(undefined);
    let results: Results = before ?? { search, hits: [], next: null, processes: 0, bytes: 0 };
    try {
      const query = apiQuery(search);
      for (let pages = 0; pages < MAX_EMPTY_PAGES; pages++) {
        const page = await get<SearchPage>("/v1/search", { ...query, page: results.next }, abort.signal);
        results = { ...results, hits: [...results.hits, ...page.hits], next: page.next, processes: results.processes + page.searched_processes, bytes: results.bytes + page.searched_bytes };
        setResults(results);
        if (page.hits.length > 0 || page.next === null) break;
      }
    } catch (problem) {
      if (!abort.signal.aborted) setError(message(problem));
    } finally {
      if (running.current === abort) setBusy(false);
    }
  };
  useEffect(() => {
    const search = readSearch(route.value.query);
    setForm(search);
    setResults(undefined);
    if (search.for) void run(search);
    return () => running.current?.abort();
  }, [asked]);
  const submit = () => {
    if (!form.for) return;
    const to = searchAddress(form);
    if (to === location.hash) void run(form);
    else go(to);
  };
  const set = (change: Partial<Search>) => setForm({ ...form, ...change });
  const groups = new Map<string, Hit[]>();
  for (const hit of results?.hits ?? []) groups.set(hit.process, [...(groups.get(hit.process) ?? []), hit]);
  return (
    <section aria-labelledby="search-title">
      <h1 id="search-title">Search</h1>
      <form role="search" onSubmit={(event) => { event.preventDefault(); submit(); }}>
        <div class="row">
          <label class="sr" for="pattern">Text or expression</label>
          <input id="pattern" type="search" class="grow" placeholder="Search the output of all processes" value={form.for} onInput={(event) => set({ for: event.currentTarget.value })} />
          <label class="check"><input type="checkbox" checked={form.regex} onChange={(event) => set({ regex: event.currentTarget.checked })} /> Regular expression</label>
          <button type="submit" class="main">Search</button>
          {busy && <button type="button" onClick={() => running.current?.abort()}>Cancel</button>}
        </div>
        <div class="row fields">
          <label>Owner <input id="search-owner" placeholder="any" value={form.owner} onInput={(event) => set({ owner: event.currentTarget.value })} /></label>
          <label>Status
            <select id="search-status" value={form.status} onChange={(event) => set({ status: event.currentTarget.value })}>
              <option value="">live and ended</option>
              <option value="live">live</option>
              <option value="ended">ended</option>
            </select>
          </label>
          <label>Label <input id="search-label" placeholder="key=value" value={form.label} onInput={(event) => set({ label: event.currentTarget.value })} /></label>
          <label>Created
            <select id="search-created" value={form.created} onChange={(event) => set({ created: event.currentTarget.value })}>
              {SPANS.map(([value, name]) => <option key={value} value={value}>{name}</option>)}
            </select>
          </label>
          {form.created === "between" && <label>From <input id="search-from" type="datetime-local" value={form.from} onInput={(event) => set({ from: event.currentTarget.value })} /></label>}
          {form.created === "between" && <label>To <input id="search-to" type="datetime-local" value={form.to} onInput={(event) => set({ to: event.currentTarget.value })} /></label>}
        </div>
      </form>
      <Problem text={error} />
      {results && <p class="hint" role="status">{results.hits.length} hits in {results.processes} processes, {bytes(results.bytes)} searched{busy ? " …" : results.next ? "; there is more" : ""}</p>}
      {results && !busy && results.hits.length === 0 && results.next === null && <Empty>No output that was searched has “{results.search.for}”.</Empty>}
      {[...groups.entries()].map(([process, hits]) => (
        <section key={process} class="group">
          <h2><a href={address("process", process)}>{title(hits[0]!)}</a> <span class="hint">{hits[0]!.owner} · {hits[0]!.status}</span></h2>
          <ul class="found">
            {hits.map((hit) => (
              <li key={hit.cursor} data-row><a class="mono" href={`${address("process", process, "log")}?at=${hit.cursor}`}><Marked text={hit.text || " "} pattern={results!.search.for} literal={!results!.search.regex} /></a></li>
            ))}
          </ul>
        </section>
      ))}
      {results?.next && !busy && <p><button type="button" onClick={() => void run(results.search, results)}>Search on</button></p>}
    </section>
  );
}
