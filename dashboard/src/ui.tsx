// Parts that several views use.

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { message, queryText, session } from "./api";
import { state } from "./text";
import type { Process } from "./types";

/** Where the page is: `#/process/ID/log?at=1` has the parts `process`, `ID`, `log`. */
export const route = signal(readRoute());

export interface Route {
  parts: string[];
  query: URLSearchParams;
}

function readRoute(): Route {
  // An address that signs in has a key there, which is not a page.
  const hash = location.hash.startsWith("#k=") ? "" : location.hash;
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  return { parts: (path ?? "").split("/").filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(query ?? "") };
}

addEventListener("hashchange", () => {
  route.value = readRoute();
});

export function address(...parts: string[]): string {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

export function go(hash: string): void {
  location.hash = hash;
}

/** Changes the query of the address without a new entry in the history, so that Back comes back to it. */
export function remember(query: Record<string, unknown>): void {
  history.replaceState(null, "", address(...route.value.parts) + queryText(query));
}

/** The processes of an owner. */
export function ownerAddress(owner: string): string {
  return `#/${queryText({ owner })}`;
}

export function Badge(props: { process: Process }) {
  const [text, tone] = state(props.process);
  return <span class={`badge ${tone}`}>{text}</span>;
}

/** Text with the hits of a search in it marked. */
export function Marked(props: { text: string; pattern: string; literal?: boolean }) {
  const { text, pattern } = props;
  const expression = props.literal ? pattern.replace(/[.*+?^${}()|[\]\\]/g, "\\$&") : pattern.replace(/(?<!\\)\((?!\?)/g, "(?:");
  let parts: string[] = [];
  try {
    parts = text.split(new RegExp(`(${expression})`, props.literal ? "gi" : "g"));
  } catch {
    // The daemon's expressions are not quite the browser's: then only the row says that it is a hit.
  }
  // Text and hits by turns, unless the expression has named groups.
  return parts.length > 1 && parts.join("") === text ? <>{parts.map((part, at) => (at % 2 ? <mark key={at}>{part}</mark> : part))}</> : <>{text}</>;
}

export function Problem(props: { text: string | undefined }) {
  return props.text ? <p class="problem" role="alert">{props.text}</p> : null;
}

export function Empty(props: { children: ComponentChildren }) {
  return <p class="empty">{props.children}</p>;
}

/** A short text that disappears, such as "copied". */
export const toast = signal("");
let toastTimer = 0;

export function say(text: string): void {
  toast.value = text;
  clearTimeout(toastTimer);
  toastTimer = window.setTimeout(() => (toast.value = ""), 4000);
}

/** Whether this browser may act. */
export function mayAct(): boolean {
  return session.value.state === "in" && !session.value.readOnly;
}

/** A button that does something over the API; disabled while it runs and in a read-only dashboard. */
export function Act(props: { do: () => Promise<unknown>; children: ComponentChildren; class?: string; label?: string; done?: string }) {
  const [busy, setBusy] = useState(false);
  const click = async () => {
    setBusy(true);
    try {
      await props.do();
      if (props.done) say(props.done);
    } catch (error) {
      say(message(error));
    } finally {
      setBusy(false);
    }
  };
  const why = mayAct() ? undefined : "This dashboard may only look";
  return (
    <button type="button" class={props.class ?? ""} aria-label={props.label} title={why} disabled={busy || !mayAct()} onClick={() => void click()}>
      {props.children}
    </button>
  );
}

interface Question {
  title: string;
  body: ComponentChildren;
  yes: string;
  answer: (yes: boolean) => void;
}

const question = signal<Question | null>(null);

/** Asks before something is done that cannot be undone. */
export function confirm(title: string, body: ComponentChildren, yes: string): Promise<boolean> {
  return new Promise((answer) => {
    question.value = { title, body, yes, answer };
  });
}

export function Confirm() {
  const dialog = useRef<HTMLDialogElement>(null);
  const asked = question.value;
  useEffect(() => {
    if (asked) dialog.current?.showModal();
  }, [asked]);
  if (!asked) return null;
  const answer = (yes: boolean) => {
    // Closed before it is removed: that gives the focus back to where it was.
    dialog.current?.close();
    question.value = null;
    asked.answer(yes);
  };
  return (
    <dialog ref={dialog} aria-labelledby="confirm-title" onCancel={(event) => { event.preventDefault(); answer(false); }}>
      <h2 id="confirm-title">{asked.title}</h2>
      <div class="dialog-body">{asked.body}</div>
      <div class="row end">
        <button type="button" onClick={() => answer(false)}>Cancel</button>
        <button type="button" class="danger" onClick={() => answer(true)}>{asked.yes}</button>
      </div>
    </dialog>
  );
}

/** Two curves over the same time. */
export function Chart(props: { values: (number | null)[]; label: string; now: string; tone: string }) {
  const known = props.values.filter((value): value is number => value !== null);
  const most = Math.max(1, ...known);
  const step = 300 / Math.max(1, props.values.length - 1);
  let path = "";
  props.values.forEach((value, at) => {
    if (value === null) return;
    path += `${path === "" || props.values[at - 1] === null ? "M" : "L"}${(at * step).toFixed(1)} ${(38 - (value / most) * 36).toFixed(1)}`;
  });
  return (
    <figure class={`chart ${props.tone}`}>
      <figcaption>
        {props.label} <strong>{props.now}</strong>
      </figcaption>
      <svg viewBox="0 0 300 40" preserveAspectRatio="none" role="img" aria-label={`${props.label}: ${props.now}`}>
        <path d={path} fill="none" vector-effect="non-scaling-stroke" />
      </svg>
    </figure>
  );
}

export async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    say(`Copied ${text.length.toLocaleString()} characters`);
  } catch {
    say("The browser does not allow copying here");
  }
}
