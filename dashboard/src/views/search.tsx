// Search over the output of every process, live and ended.

import { useRef, useState } from "preact/hooks";
import { get, message } from "../api";
import { bytes } from "../text";
import type { Hit, SearchPage } from "../types";
import { address, Empty, Problem, route } from "../ui";

interface Results {
  pattern: string;
  hits: Hit[];
  next: string | null;
  processes: number;
  bytes: number;
}

/** Pages without a hit that are read on before asking whether to go on. */
const MAX_EMPTY_PAGES = 10;

export function SearchView() {
  const [pattern, setPattern] = useState(route.value.query.get("for") ?? "");
  const [owner, setOwner] = useState("");
  const [literal, setLiteral] = useState(true);
  const [results, setResults] = useState<Results>();
  const [error, setError] = useState<string>();
  const [busy, setBusy] = useState(false);
  const running = useRef<AbortController | null>(null);
  const run = async (before?: Results) => {
    running.current?.abort();
    const abort = (running.current = new AbortController());
    setBusy(true);
    setError(undefined);
    let results: Results = before ?? { pattern, hits: [], next: null, processes: 0, bytes: 0 };
    try {
      for (let pages = 0; pages < MAX_EMPTY_PAGES; pages++) {
        const page = await get<SearchPage>("/v1/search", { pattern: results.pattern, literal, ignore_case: literal, owner, limit: 200, timeout: "5s", page: results.next }, abort.signal);
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
  const groups = new Map<string, Hit[]>();
  for (const hit of results?.hits ?? []) groups.set(hit.process, [...(groups.get(hit.process) ?? []), hit]);
  return (
    <section aria-labelledby="search-title">
      <h1 id="search-title">Search</h1>
      <form role="search" class="row" onSubmit={(event) => { event.preventDefault(); if (pattern) void run(); }}>
        <label class="sr" for="pattern">Text or expression</label>
        <input id="pattern" type="search" class="grow" placeholder="Search the output of all processes" value={pattern} onInput={(event) => setPattern(event.currentTarget.value)} />
        <label class="sr" for="search-owner">Owner</label>
        <input id="search-owner" placeholder="Any owner" value={owner} onInput={(event) => setOwner(event.currentTarget.value)} />
        <label class="check"><input type="checkbox" checked={!literal} onChange={(event) => setLiteral(!event.currentTarget.checked)} /> Regular expression</label>
        <button type="submit" class="main">Search</button>
        {busy && <button type="button" onClick={() => running.current?.abort()}>Cancel</button>}
      </form>
      <Problem text={error} />
      {results && <p class="hint" role="status">{results.hits.length} hits in {results.processes} processes, {bytes(results.bytes)} searched{busy ? " …" : results.next ? "; there is more" : ""}</p>}
      {results && !busy && results.hits.length === 0 && results.next === null && <Empty>No output has “{results.pattern}”.</Empty>}
      {[...groups.entries()].map(([process, hits]) => (
        <section key={process} class="group">
          <h2><a href={address("process", process)}>{hits[0]!.name ?? process}</a> <span class="hint">{hits[0]!.owner} · {hits[0]!.status}</span></h2>
          <ul class="found">
            {hits.map((hit) => (
              <li key={hit.cursor} data-row><a class="mono" href={`${address("process", process, "log")}?at=${hit.cursor}`}>{hit.text || " "}</a></li>
            ))}
          </ul>
        </section>
      ))}
      {results?.next && !busy && <p><button type="button" onClick={() => void run(results)}>Search on</button></p>}
    </section>
  );
}
