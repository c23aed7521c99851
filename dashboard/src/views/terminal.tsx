// The tab with the terminal of a process.

import { useEffect, useRef, useState } from "preact/hooks";
import { message, socket } from "../api";
import type { Process } from "../types";
import { mayAct } from "../ui";

const SCRIPT = "/assets/terminal.js";

export function TerminalView(props: { process: Process }) {
  const box = useRef<HTMLDivElement>(null);
  const [said, setSaid] = useState("connecting");
  const live = props.process.status !== "finished" && props.process.status !== "lost";
  useEffect(() => {
    let close = () => {};
    let gone = false;
    const write = mayAct() && live;
    const begin = async () => {
      await styles();
      const { open } = (await import(SCRIPT)) as typeof import("../terminal");
      if (gone || !box.current) return;
      const path = `/v1/processes/${props.process.id}/attach${write ? "?write=true" : ""}`;
      close = open({ box: box.current, connect: () => socket(path), write, resize: write, said: setSaid });
    };
    begin().catch((error) => setSaid(message(error)));
    return () => {
      gone = true;
      close();
    };
  }, [props.process.id, live]);
  return (
    <section aria-label="Terminal">
      <p class="hint" role="status">{said}</p>
      <div class="terminal-box" ref={box} />
    </section>
  );
}

function styles(): Promise<void> {
  const href = "/assets/terminal.css";
  if (document.querySelector(`link[href="${href}"]`)) return Promise.resolve();
  return new Promise((done, fail) => {
    const link = document.createElement("link");
    link.rel = "stylesheet";
    link.href = href;
    link.onload = () => done();
    link.onerror = () => fail(new Error("the terminal cannot be loaded"));
    document.head.append(link);
  });
}
