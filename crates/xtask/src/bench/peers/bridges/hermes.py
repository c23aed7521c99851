"""hermes-agent's process registry, asked over JSON-RPC on stdin and stdout."""
import json, os, sys, threading

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
from tools.process_registry import ProcessRegistry

registry = ProcessRegistry()
registry.recover_from_checkpoint()
lock = threading.Lock()


def start(script):
    return registry.spawn_local(script, cwd=os.getcwd()).id


def wait(job):
    answer = registry.wait(job, timeout=60)
    return answer.get("exit_code") if answer.get("status") in ("exited", "already_exited") else None


def tail(job):
    return registry.read_log(job, limit=20).get("output", "")


def stop(job):
    registry.kill_process(job)


def answer(message):
    try:
        reply = {"result": globals()[message["method"]](*message["params"])}
    except Exception as error:
        reply = {"error": repr(error)}
    with lock:
        print(json.dumps({"id": message["id"], **reply}), file=answers, flush=True)


for line in sys.stdin:
    threading.Thread(target=answer, args=(json.loads(line),), daemon=True).start()
