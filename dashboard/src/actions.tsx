// What a person does with a process: pause, resume, stop, kill and restart one that lives, remove one that has ended.

import { get, send } from "./api";
import { AGENT_LABEL, bytes, title } from "./text";
import type { Process, TreeMember } from "./types";
import { Act, address, confirm, go, say } from "./ui";

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

/** Asks, and restarts a process that has a restart policy; gives the id of the next run. */
async function restart(process: Process): Promise<string | null> {
  const record = await get<Process>(`/v1/processes/${process.id}`);
  const now = record.tree.length === 0 ? <p>It is started now instead of waiting for its restart.</p> : <p>This is stopped first:</p>;
  if (!(await confirm(`Restart ${title(record)}?`, <>{now}<Stopped process={record} tree={record.tree} /></>, "Restart it"))) return null;
  return (await send<Process>("POST", `/v1/processes/${process.id}/restart`, { by: "dashboard" })).id;
}

/** Asks, and removes the record and the output of a process that has ended. */
async function remove(process: Process): Promise<boolean> {
  const body = <p>Its record and {bytes(process.output.bytes)} of output are deleted. This cannot be undone.</p>;
  if (!(await confirm(`Remove ${title(process)}?`, body, "Remove it"))) return false;
  await send("DELETE", `/v1/processes/${process.id}`);
  return true;
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
  // A run that waits for its restart is over, and can be started now.
  const waits = process.life?.restarting_at != null || process.life?.awaits_turn === true;
  const again = async () => {
    const next = await restart(process);
    if (next) go(address("process", next));
  };
  const forget = async () => {
    if (!(await remove(process))) return;
    say(`Removed ${title(process)}`);
    go("#/");
  };
  const restartable = process.life !== undefined && process.labels[AGENT_LABEL] === undefined && (live || waits);
  if (!live) {
    return (
      <div class="row" role="group" aria-label="Actions">
        {restartable && <Act do={again}>Restart now</Act>}
        {!waits && <Act do={forget} class="danger">Remove</Act>}
        {waits && <Act do={ask("stop")} class="danger">Cancel restart</Act>}
      </div>
    );
  }
  return (
    <div class="row" role="group" aria-label="Actions">
      {restartable && <Act do={again}>Restart</Act>}
      <Act do={post(process.paused ? "resume" : "pause")}>{process.paused ? "Resume" : "Pause"}</Act>
      <Act do={ask("stop")} class="danger">Stop</Act>
      <Act do={ask("kill")} class="danger">Kill</Act>
    </div>
  );
}
