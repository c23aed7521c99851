// The terminal of a process, in a file of its own: xterm.js is loaded when a terminal is opened.

import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";

export interface Options {
  box: HTMLElement;
  /** Opens the connection to the process. */
  connect: () => WebSocket;
  write: boolean;
  resize: boolean;
  said: (text: string) => void;
}

/** Shows the terminal; the result ends it. */
export function open(options: Options): () => void {
  allowStyles();
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const theme = dark
    ? { background: "#12161a", foreground: "#e4e8ec", cursor: "#e4e8ec" }
    : { background: "#ffffff", foreground: "#1c2126", cursor: "#1c2126", selectionBackground: "#b5d5ff" };
  const terminal = new Terminal({ fontSize: 13, convertEol: false, scrollback: 5000, theme, disableStdin: !options.write, screenReaderMode: true });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.open(options.box);
  const socket = options.connect();
  socket.binaryType = "arraybuffer";
  const encoder = new TextEncoder();
  socket.onmessage = (event) => {
    if (typeof event.data !== "string") return terminal.write(new Uint8Array(event.data));
    const notice = JSON.parse(event.data);
    switch (notice.notice) {
      case "attached":
        if (notice.pty) terminal.resize(notice.pty.cols, notice.pty.rows);
        if (options.resize) resized();
        options.said(options.write ? "attached" : "watching");
        break;
      case "screen":
        terminal.write(notice.data);
        break;
      case "size":
        terminal.resize(notice.cols, notice.rows);
        break;
      case "gap":
        terminal.write(`\r\n[${notice.to - notice.from} bytes were dropped]\r\n`);
        break;
      case "refused":
        options.said(notice.message);
        break;
      case "exit":
        options.said("the process has ended");
        break;
    }
  };
  socket.onclose = () => options.said("detached");
  terminal.onData((data) => socket.readyState === WebSocket.OPEN && options.write && socket.send(encoder.encode(data)));
  terminal.onBinary((data) => {
    if (socket.readyState === WebSocket.OPEN && options.write) socket.send(Uint8Array.from(data, (character) => character.charCodeAt(0)));
  });
  function resized() {
    const size = fit.proposeDimensions();
    if (size && socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ control: "resize", rows: size.rows, cols: size.cols }));
  }
  const watch = new ResizeObserver(() => options.resize && options.write && resized());
  watch.observe(options.box);
  return () => {
    watch.disconnect();
    socket.onclose = null;
    socket.close();
    terminal.dispose();
  };
}

let allowed = false;

/** xterm.js makes <style> elements; with the nonce of the page they need no exception in the content security policy. */
function allowStyles(): void {
  if (allowed) return;
  allowed = true;
  const nonce = document.querySelector<HTMLMetaElement>("meta[name=nonce]")?.content ?? "";
  const create = document.createElement.bind(document) as (name: string, options?: ElementCreationOptions) => HTMLElement;
  document.createElement = ((name: string, options?: ElementCreationOptions) => {
    const element = create(name, options);
    if (name.toLowerCase() === "style") element.nonce = nonce;
    return element;
  }) as typeof document.createElement;
}
