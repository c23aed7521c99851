// Requests to `/v1`, signing in and out (401), `useLoaded`, which reads at the interval that each view chooses, and `followEvents`,
// the long poll on the event log.
//
// Every request carries the page secret: the cookie alone also reaches other servers on `pinfold.localhost`.

import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";

const STORED = "pinfold-page";

export type Session = { state: "checking" } | { state: "out"; why: string } | { state: "in"; readOnly: boolean };
export const session = signal<Session>({ state: "checking" });
/** Whether the last request reached the daemon. */
export const reachable = signal(true);
/** Changes with every event of a process. */
export const news = signal(0);

export class ApiError extends Error {
  constructor(readonly status: number, readonly code: string, message: string) {
    super(message);
  }
}

interface Stored {
  secret: string;
  readOnly: boolean;
}

function stored(): Stored | null {
  try {
    return JSON.parse(localStorage.getItem(STORED) ?? "null");
  } catch {
    return null;
  }
}

/** Exchanges the key of the address, if there is one, and checks that this browser is signed in. */
export async function signIn(): Promise<void> {
  const key = /^#k=([A-Za-z0-9_]+)$/.exec(location.hash)?.[1];
  if (key) {
    history.replaceState(null, "", "/");
    try {
      const answer = await fetch("/login", { method: "POST", body: JSON.stringify({ key }) });
      const said = await answer.json();
      if (!answer.ok) throw new ApiError(answer.status, said.code, said.message);
      localStorage.setItem(STORED, JSON.stringify({ secret: said.secret, readOnly: said.read_only }));
    } catch (error) {
      // A reload of a used address: this browser may be signed in all the same.
      if (!stored()) {
        session.value = { state: "out", why: message(error) };
        return;
      }
    }
  }
  const kept = stored();
  if (!kept) {
    session.value = { state: "out", why: "This browser is not signed in." };
    return;
  }
  try {
    await get("/healthz");
    session.value = { state: "in", readOnly: kept.readOnly };
  } catch (error) {
    if (session.value.state !== "out") session.value = { state: "out", why: message(error) };
  }
}

export async function signOut(): Promise<void> {
  const headers = pageHeaders();
  localStorage.removeItem(STORED);
  session.value = { state: "out", why: "You have signed out." };
  await fetch("/logout", { method: "POST", headers }).catch(() => {});
}

function pageHeaders(): Record<string, string> {
  return { "pinfold-page": stored()?.secret ?? "" };
}

/** A request whose answer is read by the caller. */
export async function request(path: string, init: RequestInit = {}): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(path, { ...init, headers: { ...pageHeaders(), ...(init.headers ?? {}) } });
  } catch (error) {
    if ((error as Error).name === "AbortError") throw error;
    reachable.value = false;
    throw new ApiError(0, "unreachable", "The daemon does not answer. If it was stopped, type `pinfold dashboard` again.");
  }
  reachable.value = true;
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({ code: "internal", message: `status ${answer.status}` }));
  if (answer.status === 401 && session.value.state !== "out") session.value = { state: "out", why: said.message };
  throw new ApiError(answer.status, said.code, said.message);
}

export async function get<T>(path: string, query: Record<string, unknown> = {}, abort?: AbortSignal): Promise<T> {
  return (await request(path + queryText(query), { signal: abort ?? null })).json();
}

export async function send<T>(method: "POST" | "DELETE", path: string, body: unknown = {}): Promise<T> {
  const init = method === "POST" ? { method, body: JSON.stringify(body) } : { method };
  return (await request(path, init)).json();
}

/** The query of an address; a list is given as often as it is long, and what is empty is left out. */
export function queryText(query: Record<string, unknown>): string {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== "") words.append(name, String(one));
    }
  }
  const text = words.toString();
  return text ? `?${text}` : "";
}

/** A WebSocket of the API. */
export function socket(path: string): WebSocket {
  return new WebSocket(`ws://${location.host}${path}`, ["pinfold", `page.${stored()?.secret ?? ""}`]);
}

export function message(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Follows the event log while the page is visible, and counts `news`. */
export async function followEvents(): Promise<never> {
  let after: string | number = "latest";
  for (;;) {
    if (document.hidden || session.value.state !== "in") {
      await sleep(1000);
      continue;
    }
    try {
      const page: { next: number; events: unknown[] } = await get("/v1/events", { after, wait: "25s", limit: 1000 });
      after = page.next;
      if (page.events.length > 0) news.value++;
      await sleep(300);
    } catch {
      await sleep(2000);
    }
  }
}

export function sleep(ms: number): Promise<void> {
  return new Promise((done) => setTimeout(done, ms));
}

export interface Loaded<T> {
  value: T | undefined;
  error: string | undefined;
  reload: () => void;
}

/**
 * Loads something now, with every event, and every `interval` milliseconds while the page is visible. A slow answer is asked for less often:
 * at most a tenth of the time goes into it.
 */
export function useLoaded<T>(load: (abort: AbortSignal) => Promise<T>, interval: number, keys: unknown[]): Loaded<T> {
  const [value, setValue] = useState<T>();
  const [error, setError] = useState<string>();
  const wake = useRef<() => void>(() => {});
  useEffect(() => {
    const abort = new AbortController();
    let reload = false;
    const run = async () => {
      while (!abort.signal.aborted) {
        const begun = performance.now();
        const seen = news.value;
        reload = false;
        if (!document.hidden) {
          try {
            const loaded = await load(abort.signal);
            if (abort.signal.aborted) return;
            setValue(loaded);
            setError(undefined);
          } catch (problem) {
            if (abort.signal.aborted) return;
            setError(message(problem));
          }
        }
        const took = performance.now() - begun;
        const pause = Math.max(interval, took * 9);
        const least = Math.max(400, took * 4);
        await new Promise<void>((done) => {
          const end = setTimeout(finish, pause);
          const early = setInterval(() => {
            const due = reload || (news.value !== seen && performance.now() - begun > least);
            if (due || abort.signal.aborted) finish();
          }, 100);
          function finish() {
            clearTimeout(end);
            clearInterval(early);
            done();
          }
        });
      }
    };
    wake.current = () => {
      reload = true;
    };
    setValue(undefined);
    setError(undefined);
    void run();
    return () => abort.abort();
  }, keys);
  return { value, error, reload: () => wake.current() };
}
