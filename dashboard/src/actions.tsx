// What a person does with a process: stop, kill, pause, resume, restart.

import { get, send } from "./api";
import { title } from "./text";
import type { Process, TreeMember } from "./types";
import { Act, confirm } from "./ui";

function Stopped(props: { process: Process; tree: TreeMember[] }) {
  const shown = props.tree.slice(0, 12);
  return (
    <>
      <p>
        <code>{props.process.command}</code>
      </p>
      {shown.length > 0 && (
        <ul class="tree">
          {shown.map((member) => (
            <li key={member.pid}>
              {member.pid} <code>{member.command}</code>
            </li>
          ))}
        </ul>
      )}
      {props.tree.length > shown.length && <p>and {props.tree.length - shown.length} more</p>}
    </>
  );
}

/** Asks, showing what will be stopped, and stops it. */
export async function stop(process: Process, how: "stop" | "kill"): Promise<void> {
  const record = await get<Process>(`/v1/processes/${process.id}`);
  const verb = how === "stop" ? "Stop" : "Kill";
  const yes = await confirm(`${verb} ${title(record)}?`, <Stopped process={record} tree={record.tree} />, `${verb} it`);
  if (!yes) return;
  await send("POST", `/v1/processes/${process.id}/stop`, { by: "dashboard", ...(how === "kill" ? { grace: "0" } : {}) });
}

export function Actions(props: { process: Process; reload: () => void }) {
  const { process, reload } = props;
  const live = process.status !== "finished" && process.status !== "lost";
  const post = (verb: string) => async () => {
    await send("POST", `/v1/processes/${process.id}/${verb}`);
    reload();
  };
  const ask = (how: "stop" | "kill") => async () => {
    await stop(process, how);
    reload();
  };
  if (!live) return null;
  return (
    <div class="row" role="group" aria-label="Actions">
      <Act do={post(process.paused ? "resume" : "pause")}>{process.paused ? "Resume" : "Pause"}</Act>
      <Act do={ask("stop")} class="danger">Stop</Act>
      <Act do={ask("kill")} class="danger">Kill</Act>
    </div>
  );
}
