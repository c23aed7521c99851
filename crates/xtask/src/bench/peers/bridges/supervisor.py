"""supervisord's XML-RPC, asked over JSON-RPC on stdin and stdout. An arbitrary command is a program section of its own."""
import json, os, sys, threading, time, xmlrpc.client
from supervisor.xmlrpc import SupervisorTransport

directory = os.getcwd()
lock = threading.Lock()
adding = threading.Lock()
local = threading.local()
count = 0


def server():
    if not hasattr(local, "server"):
        transport = SupervisorTransport(None, None, "unix://" + directory + "/socket")
        local.server = xmlrpc.client.ServerProxy("http://localhost", transport=transport).supervisor
    return local.server


def start(script):
    global count
    with adding:
        count += 1
        name = f"job{os.getpid()}x{count}"
        quoted = script.replace("%", "%%").replace("'", "'\"'\"'")
        with open(f"{directory}/jobs/{name}.conf", "w") as section:
            section.write(f"[program:{name}]\ncommand=sh -c '{quoted}'\nautostart=false\nautorestart=false\n"
                          f"startsecs=0\nstopasgroup=true\nkillasgroup=true\nredirect_stderr=true\n"
                          f"stdout_logfile={directory}/{name}.log\nstdout_logfile_maxbytes=0\n")
        server().reloadConfig()
        server().addProcessGroup(name)
    server().startProcess(name, False)
    return name


def wait(job):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        info = server().getProcessInfo(job)
        if info["statename"] in ("EXITED", "STOPPED", "FATAL") and info["start"]:
            return info["exitstatus"]
        time.sleep(0.002)


def tail(job):
    return server().readProcessStdoutLog(job, -4096, 0)


def stop(job):
    server().stopProcess(job)


def answer(message):
    try:
        reply = {"result": globals()[message["method"]](*message["params"])}
    except Exception as error:
        reply = {"error": repr(error)}
    with lock:
        print(json.dumps({"id": message["id"], **reply}), flush=True)


for line in sys.stdin:
    threading.Thread(target=answer, args=(json.loads(line),), daemon=True).start()
