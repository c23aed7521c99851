// The log of a process: scrolled by byte offset, searched, followed, copied and downloaded.

import { useEffect, useRef, useState } from "preact/hooks";
import { css, pieces, plain } from "../ansi";
import { get, message, sleep } from "../api";
import { LogStore, readBytes, WINDOW } from "../log-store";
import { bytes } from "../text";
import type { Process } from "../types";
import { copy, Problem, say } from "../ui";

const ROW = 18;
/** Rows drawn beyond each edge of the screen. */
const MARGIN = 20;
/** Rows near an edge at which the next window is loaded. */
const NEAR = 40;

interface Match {
  cursor: number;
  text: string;
}

interface Found {
  pattern: string;
  hits: Match[];
  more: boolean;
}

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
  const draw = () => setDrawn((count) => count + 1);

  const scrollToRow = (index: number, place: "middle" | "end") => {
    requestAnimationFrame(() => {
      const box = pane.current;
      if (!box) return;
      box.scrollTop = place === "end" ? box.scrollHeight : Math.max(0, index * ROW - box.clientHeight / 2);
      setTop(box.scrollTop);
    });
  };

  const guarded = async (work: () => Promise<void>) => {
    if (busy.current) return;
    busy.current = true;
    try {
      await work();
      setError(undefined);
    } catch (problem) {
      if ((problem as Error).name !== "AbortError") setError(message(problem));
    } finally {
      busy.current = false;
      draw();
    }
  };

  const jump = (cursor: number) =>
    guarded(async () => {
      setFollow(false);
      const log = store.current!;
      if (!(cursor >= log.from && cursor < log.to)) await log.jump(cursor);
      setMarked(cursor);
      scrollToRow(log.indexOf(cursor), "middle");
    });

  const toEnd = () =>
    guarded(async () => {
      const log = store.current!;
      if (log.to < log.end || log.to === 0) await log.jumpToEnd();
      scrollToRow(0, "end");
    });

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
    const abort = new AbortController();
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
      applyWrap(wrap);
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

  const lookFor = async (pattern: string, more?: Found) => {
    if (!pattern) return setFound(undefined);
    setError(undefined);
    try {
      const cursor = more ? more.hits.at(-1)!.cursor + 1 : 0;
      const page = await get<{ matches?: (Match & { context: boolean })[] }>(`/v1/processes/${process.id}/output`, {
        grep: pattern, cursor, strip_ansi: true, budget: "1M",
      });
      const fresh = (page.matches ?? []).filter((match) => !match.context && match.cursor >= cursor);
      const hits = [...(more?.hits ?? []), ...fresh];
      setFound({ pattern, hits, more: fresh.length >= 500 });
      if (!more) {
        setHit(hits.length ? 0 : -1);
        if (hits[0]) await jump(hits[0].cursor);
      }
    } catch (problem) {
      setError(message(problem));
    }
  };

  const toHit = (to: number) => {
    if (!found?.hits.length) return;
    const index = (to + found.hits.length) % found.hits.length;
    setHit(index);
    void jump(found.hits[index]!.cursor);
  };

  useEffect(() => {
    const key = (event: KeyboardEvent) => {
      if ((event.target as HTMLElement).closest("input, textarea, select, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
      const acts: Record<string, () => void> = {
        n: () => toHit(hit + 1),
        N: () => toHit(hit - 1),
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
            <span>{found.hits.length === 0 ? "no hits" : `${hit + 1} of ${found.hits.length}${found.more ? "+" : ""}`}</span>
            <button type="button" aria-label="Previous hit" onClick={() => toHit(hit - 1)}>↑</button>
            <button type="button" aria-label="Next hit" onClick={() => toHit(hit + 1)}>↓</button>
            {found.more && <button type="button" onClick={() => void lookFor(found.pattern, found)}>More</button>}
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
            {found.hits.slice(0, 500).map((match, index) => (
              <li key={match.cursor}>
                <button type="button" aria-current={index === hit ? "true" : undefined} onClick={() => toHit(index)}>{match.text.slice(0, 200) || " "}</button>
              </li>
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

/** A piece of a line, with the hits in it marked. */
function Text(props: { text: string; style: Record<string, string>; pattern: string | undefined }) {
  const styled = Object.keys(props.style).length > 0;
  let inner: preact.ComponentChildren = props.text;
  if (props.pattern) {
    try {
      const parts = props.text.split(new RegExp(`(${props.pattern.replace(/\((?!\?)/g, "(?:")})`, "g"));
      if (parts.length > 1) inner = parts.map((part, at) => (at % 2 ? <mark key={at}>{part}</mark> : part));
    } catch {
      // The daemon's expressions are not quite the browser's: then hits are marked by their row.
    }
  }
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
