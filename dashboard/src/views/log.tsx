// The log of a process: scrolled by byte offset, searched, followed, copied and downloaded.

import { useEffect, useRef, useState } from "preact/hooks";
import { css, pieces, plain } from "../ansi";
import { get, message, sleep } from "../api";
import { LogStore, readBytes, WINDOW } from "../log-store";
import { bytes } from "../text";
import type { Process } from "../types";
import { copy, Marked, Problem, say } from "../ui";

const ROW = 18;
/** Rows drawn beyond each edge of the screen. */
const MARGIN = 20;
/** Rows near an edge at which the next window is loaded. */
const NEAR = 40;

interface Match {
  cursor: number;
  text: string;
}

interface GrepPage {
  matches?: (Match & { context: boolean })[];
  next_cursor: number;
  end: number;
}

interface Found {
  pattern: string;
  hits: Match[];
  /** Where the search goes on; `null` if it has reached the end. */
  next: number | null;
}

/** Hits found before `More` is offered, and hits listed at once. */
const HITS = 500;

export function LogView(props: { process: Process; at: string | null }) {
  const { process } = props;
  const pane = useRef<HTMLDivElement>(null);
  const store = useRef<LogStore | null>(null);
  const [, setDrawn] = useState(0);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  const [follow, setFollow] = useState(props.at === null);
  const [wrap, setWrap] = useState(false);
  const [marked, setMarked] = useState<number | null>(null);
  const [error, setError] = useState<string>();
  const [found, setFound] = useState<Found>();
  const [search, setSearch] = useState("");
  const [hit, setHit] = useState(-1);
  const busy = useRef(false);
  const running = useRef<Promise<void>>(Promise.resolve());
  const following = useRef<AbortController | null>(null);
  const draw = () => setDrawn((count) => count + 1);

  const scrollToRow = (index: number, place: "middle" | "end") => {
    requestAnimationFrame(() => {
      const box = pane.current;
      if (!box) return;
      box.scrollTop = place === "end" ? box.scrollHeight : Math.max(0, index * ROW - box.clientHeight / 2);
      setTop(box.scrollTop);
    });
  };

  /** Changes what is loaded, one change at a time. While one runs, only what a person asked for is queued. */
  const guarded = (work: () => Promise<void>, asked = false): Promise<void> => {
    if (busy.current && !asked) return Promise.resolve();
    busy.current = true;
    const run = running.current.then(async () => {
      try {
        await work();
        setError(undefined);
      } catch (problem) {
        if ((problem as Error).name !== "AbortError") setError(message(problem));
      } finally {
        if (running.current === run) busy.current = false;
        draw();
      }
    });
    running.current = run;
    return run;
  };

  const jump = (cursor: number) => {
    // At once, not with the next rendering: following would scroll back to the end.
    following.current?.abort();
    setFollow(false);
    return guarded(async () => {
      const log = store.current!;
      if (!(cursor >= log.from && cursor < log.to)) await log.jump(cursor);
      setMarked(cursor);
      scrollToRow(log.indexOf(cursor), "middle");
    }, true);
  };

  const toEnd = () =>
    guarded(async () => {
      const log = store.current!;
      if (log.to < log.end || log.to === 0) await log.jumpToEnd();
      scrollToRow(0, "end");
    }, true);

  // Opens the log, at a cursor or at its end.
  useEffect(() => {
    const log = new LogStore(process.id);
    store.current = log;
    log.end = process.output.bytes;
    const cursor = props.at === null ? null : Number(props.at);
    void (cursor === null || Number.isNaN(cursor) ? toEnd() : jump(cursor));
  }, [process.id, props.at]);

  // Follows it while that is wanted.
  useEffect(() => {
    if (!follow) return;
    const abort = (following.current = new AbortController());
    const run = async () => {
      while (!abort.signal.aborted) {
        const log = store.current;
        if (!log || busy.current || document.hidden) {
          await sleep(200);
          continue;
        }
        if (log.closed && log.to >= log.end) return;
        try {
          if (log.end - log.to > 2 * WINDOW) await log.jumpToEnd(abort.signal);
          else await log.after("20s", abort.signal);
          if (abort.signal.aborted) return;
          draw();
          scrollToRow(0, "end");
          await sleep(120);
        } catch (problem) {
          if (abort.signal.aborted) return;
          setError(message(problem));
          await sleep(2000);
        }
      }
    };
    void run();
    return () => abort.abort();
  }, [follow, process.id]);

  useEffect(() => {
    const box = pane.current!;
    const watch = new ResizeObserver(() => {
      setHeight(box.clientHeight);
      if (wrap) applyWrap(wrap);
    });
    watch.observe(box);
    return () => watch.disconnect();
  }, [wrap]);

  const applyWrap = (on: boolean) => {
    const log = store.current;
    const box = pane.current;
    if (!log || !box) return;
    const at = log.row(Math.floor(box.scrollTop / ROW))?.at ?? 0;
    log.setWidth(on ? Math.max(20, Math.floor((box.clientWidth - 24) / characterWidth(box))) : null);
    draw();
    if (!follow) scrollToRow(log.indexOf(at) + Math.floor(box.clientHeight / ROW / 2), "middle");
  };

  const scrolled = () => {
    const box = pane.current!;
    const log = store.current!;
    setTop(box.scrollTop);
    const first = Math.floor(box.scrollTop / ROW);
    const last = first + Math.ceil(box.clientHeight / ROW);
    if (follow && last < log.rowCount - 3) setFollow(false);
    if (first < NEAR && log.from > 0) {
      void guarded(async () => {
        const added = await log.before();
        draw();
        if (added > 0) requestAnimationFrame(() => (box.scrollTop += added * ROW));
      });
    } else if (last > log.rowCount - NEAR && log.to < log.end) {
      void guarded(async () => {
        const { dropped } = await log.after();
        draw();
        if (dropped > 0) requestAnimationFrame(() => (box.scrollTop -= dropped * ROW));
      });
    }
  };

  /** Searches from the beginning, or on from where a search stopped; gives what is found by then. */
  const lookFor = async (pattern: string, before?: Found): Promise<Found | undefined> => {
    if (!pattern) {
      setFound(undefined);
      return undefined;
    }
    setError(undefined);
    const hits = [...(before?.hits ?? [])];
    const enough = hits.length + HITS;
    let next: number | null = before?.next ?? 0;
    // A log may grow as fast as it is searched: what is written later is not waited for.
    let end = Infinity;
    try {
      // An answer ends with its budget too: its cursor, not its number of hits, says whether there is more.
      while (next !== null && hits.length < enough) {
        const cursor: number = next;
        const page = await get<GrepPage>(`/v1/processes/${process.id}/output`, { grep: pattern, cursor, strip_ansi: true, budget: "1M" });
        const fresh = (page.matches ?? []).filter((match) => !match.context && match.cursor >= cursor);
        hits.push(...fresh);
        end = Math.min(end, page.end);
        // A line that is not finished yet is where the cursor stays.
        const over = page.next_cursor >= end || (page.next_cursor <= cursor && fresh.length === 0);
        next = over ? null : page.next_cursor;
      }
    } catch (problem) {
      setError(message(problem));
      if (hits.length === 0) return undefined;
    }
    const found = { pattern, hits, next };
    setFound(found);
    if (!before) {
      setHit(hits.length ? 0 : -1);
      if (hits[0]) await jump(hits[0].cursor);
    }
    return found;
  };

  const toHit = async (to: number) => {
    if (!found?.hits.length) return;
    const known = to >= found.hits.length && found.next !== null ? ((await lookFor(found.pattern, found)) ?? found) : found;
    const index = (to + known.hits.length) % known.hits.length;
    setHit(index);
    await jump(known.hits[index]!.cursor);
  };

  useEffect(() => {
    const key = (event: KeyboardEvent) => {
      if ((event.target as HTMLElement).closest("input, textarea, select, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
      const acts: Record<string, () => void> = {
        n: () => void toHit(hit + 1),
        N: () => void toHit(hit - 1),
        g: () => void jump(0),
        G: () => void toEnd(),
        f: () => setFollow(!follow),
        w: () => { setWrap(!wrap); applyWrap(!wrap); },
      };
      acts[event.key]?.();
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  });

  const download = async () => {
    const parts: BlobPart[] = [];
    let cursor = 0;
    let size = 0;
    try {
      for (;;) {
        const read = await readBytes(process.id, { cursor, max_bytes: "8M" });
        if (read.gap) parts.push(`\n[${read.gap[1] - read.gap[0]} bytes were dropped here]\n`);
        parts.push(read.bytes as BlobPart);
        size += read.bytes.length;
        cursor = read.next;
        say(`Downloading: ${bytes(size)}`);
        if (read.bytes.length === 0 || cursor >= read.end) break;
      }
    } catch (problem) {
      return say(message(problem));
    }
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(parts, { type: "application/octet-stream" }));
    link.download = `${process.name ?? process.id}.log`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  };

  const listed = Math.floor(Math.max(0, hit) / HITS) * HITS;
  const log = store.current;
  const count = log?.rowCount ?? 0;
  const first = Math.max(0, Math.floor(top / ROW) - MARGIN);
  const last = Math.min(count, Math.ceil((top + height) / ROW) + MARGIN);
  const atEnd = log !== null && log.to >= log.end && (top + height + ROW) / ROW >= count;
  const here = atEnd ? log.end : (log?.row(Math.floor(top / ROW))?.at ?? 0);
  const markedRow = marked === null || !log ? -1 : log.indexOf(marked);
  const rows = [];
  for (let index = first; index < last; index++) {
    const row = log!.row(index);
    if (!row) continue;
    rows.push(
      <div key={index} class={index === markedRow ? "line marked" : "line"} style={{ top: `${index * ROW}px` }}>
        {pieces(row.text, row.style)[0].map((piece, at) => (
          <Text key={at} text={piece.text} style={css(piece.style)} pattern={found?.pattern} />
        ))}
      </div>,
    );
  }
  return (
    <section class="log" aria-label="Log">
      <div class="row bar">
        <form role="search" class="row" onSubmit={(event) => { event.preventDefault(); void lookFor(search); }}>
          <label class="sr" for="log-search">Search this log</label>
          <input id="log-search" type="search" placeholder="Search this log (regular expression)" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
          <button type="submit">Search</button>
        </form>
        {found && (
          <span class="row">
            <span>{found.hits.length === 0 ? "no hits" : `${hit + 1} of ${found.hits.length}${found.next === null ? "" : "+"}`}</span>
            <button type="button" aria-label="Previous hit" onClick={() => void toHit(hit - 1)}>↑</button>
            <button type="button" aria-label="Next hit" onClick={() => void toHit(hit + 1)}>↓</button>
            {found.next !== null && <button type="button" onClick={() => void lookFor(found.pattern, found)}>More</button>}
          </span>
        )}
        <span class="grow" />
        <label class="check"><input type="checkbox" checked={follow} onChange={(event) => { const on = event.currentTarget.checked; if (on) void toEnd(); setFollow(on); }} /> Follow</label>
        <label class="check"><input type="checkbox" checked={wrap} onChange={(event) => { setWrap(event.currentTarget.checked); applyWrap(event.currentTarget.checked); }} /> Wrap</label>
        <button type="button" onClick={() => void copy(plain(log?.text() ?? ""))}>Copy</button>
        <button type="button" onClick={() => void download()}>Download</button>
      </div>
      <Problem text={error} />
      <div class="log-body">
        <div class="log-pane" ref={pane} tabIndex={0} role="log" aria-live="off" aria-label="Output" onScroll={scrolled}>
          <div class="log-rows" style={{ height: `${count * ROW}px` }}>{rows}</div>
          {log && log.end === 0 && <p class="empty">No output yet.</p>}
        </div>
        {found && found.hits.length > 0 && (
          <ol class="hits" aria-label="Hits" tabIndex={0}>
            {found.hits.slice(listed, listed + HITS).map((match, at) => (
              <HitRow key={match.cursor} text={match.text} pattern={found.pattern} current={listed + at === hit} open={() => void toHit(listed + at)} />
            ))}
          </ol>
        )}
      </div>
      <div class="row bar position">
        <label for="log-at" class="sr">Position in the log</label>
        <input id="log-at" type="range" min={0} max={Math.max(1, log?.end ?? 1)} step={1} value={here} aria-valuetext={`${bytes(here)} of ${bytes(log?.end ?? 0)}`} onChange={(event) => void jump(Number(event.currentTarget.value))} />
        <span class="mono">{bytes(here)} of {bytes(log?.end ?? 0)}{process.output.dropped > 0 ? `, ${bytes(process.output.dropped)} dropped` : ""}</span>
      </div>
    </section>
  );
}

/** A hit in the list beside the log; the current one is kept in view. */
function HitRow(props: { text: string; pattern: string; current: boolean; open: () => void }) {
  const row = useRef<HTMLLIElement>(null);
  useEffect(() => {
    const [at, list] = [row.current, row.current?.parentElement];
    if (!props.current || !at || !list) return;
    // Not `scrollIntoView`, which would scroll the page too.
    list.scrollTop = Math.max(at.offsetTop + at.offsetHeight - list.clientHeight, Math.min(list.scrollTop, at.offsetTop));
  }, [props.current]);
  return (
    <li ref={row}>
      <button type="button" aria-current={props.current ? "true" : undefined} onClick={props.open}><Marked text={props.text.slice(0, 200).trim() || " "} pattern={props.pattern} /></button>
    </li>
  );
}

/** A piece of a line, with the hits in it marked. */
function Text(props: { text: string; style: Record<string, string>; pattern: string | undefined }) {
  const styled = Object.keys(props.style).length > 0;
  const inner = props.pattern ? <Marked text={props.text} pattern={props.pattern} /> : props.text;
  return styled ? <span style={props.style}>{inner}</span> : <>{inner}</>;
}

let measured = 0;
function characterWidth(box: HTMLElement): number {
  if (!measured) {
    const probe = document.createElement("span");
    probe.textContent = "0".repeat(100);
    probe.className = "line";
    box.append(probe);
    measured = probe.getBoundingClientRect().width / 100;
    probe.remove();
  }
  return measured || 7.8;
}
