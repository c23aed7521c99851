"""What schemathesis may send to a daemon that really runs things.

Fuzzed commands would be executed, fuzzed webhooks posted and fuzzed waits waited for. So whatever says what to run, where to
post or how long to wait is replaced by something harmless of the same type before it is sent; what is of the wrong type stays,
for it must be refused.
"""

import os
import random

import schemathesis

COMMANDS = {"command": "echo hi", "shell": "/bin/sh", "cwd": "/"}
NOTIFY = {
    # No address that could be posted to: always refused.
    "webhook": "ftp://refused.invalid/",
    "command": "true",
}
WAITS = {"wait", "timeout", "quiet"}
# Processes that are there. A fuzzed id finds nothing, and a fuzzed owner sees nothing: both stay only now and then.
IDS = os.environ.get("PINFOLD_IDS", "").split(",")
OWNER = "default"
NOW_AND_THEN = 0.1


def harmless_start(body):
    if not isinstance(body, dict):
        return
    for field, value in COMMANDS.items():
        if isinstance(body.get(field), str) and body[field].strip():
            body[field] = value
    argv = body.get("argv")
    if isinstance(argv, list) and argv and all(isinstance(one, str) for one in argv):
        body["argv"] = ["echo", "hi"]
    notify = body.get("notify")
    if isinstance(notify, dict):
        for field, value in NOTIFY.items():
            if isinstance(notify.get(field), str):
                notify[field] = value


def harmless_agent(body):
    if not isinstance(body, dict):
        return
    # Whatever it is to be, the program does nothing.
    if isinstance(body.get("program", ""), str):
        body["program"] = "/bin/true"
    if isinstance(body.get("cwd"), str):
        body["cwd"] = "/"


def short_waits(fields):
    if not isinstance(fields, dict):
        return
    for name in WAITS & fields.keys():
        if isinstance(fields[name], (int, float)) and not isinstance(fields[name], bool):
            fields[name] = min(fields[name], 0.05)
        elif isinstance(fields[name], str) and fields[name].strip()[:1].isdigit():
            fields[name] = "50ms"


def no_endless_waits(case):
    # Without a time, or with null for one, it would be half a minute.
    if case.operation.label == "GET /v1/processes/{id}/wait":
        case.query = {**(case.query or {})}
        if case.query.get("timeout") is None:
            case.query["timeout"] = "50ms"
    if case.operation.label == "POST /v1/wait" and isinstance(case.body, dict) and case.body.get("timeout") is None:
        case.body["timeout"] = "50ms"


def known_names(case):
    dice = random.Random(repr((case.operation.label, case.path_parameters, case.query, case.body)))
    if "id" in (case.path_parameters or {}) and dice.random() > NOW_AND_THEN:
        case.path_parameters["id"] = dice.choice(IDS)
    if isinstance(case.body, dict) and isinstance(case.body.get("ids"), list) and dice.random() > NOW_AND_THEN:
        case.body["ids"] = [dice.choice(IDS) for _ in case.body["ids"]]
    for name in ("Pinfold-Owner", "Pinfold-Parent"):
        if name in (case.headers or {}) and dice.random() > NOW_AND_THEN:
            del case.headers[name]
    if isinstance(case.body, dict) and isinstance(case.body.get("owner"), str) and dice.random() > NOW_AND_THEN:
        case.body["owner"] = OWNER


@schemathesis.hook
def before_call(context, case, kwargs):
    known_names(case)
    no_endless_waits(case)
    short_waits(case.query)
    if isinstance(case.body, dict):
        short_waits(case.body)
    if case.operation.label == "POST /v1/processes":
        harmless_start(case.body)
    if case.operation.label == "POST /v1/agents":
        harmless_agent(case.body)
