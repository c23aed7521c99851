"""One function for each route: how its request is written, and what its answer is. No input or output happens here.

Names of processes, owners and consumers go into the path; `None` leaves a field or parameter out.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, Literal, TypeVar, cast
from urllib.parse import quote, urlencode

from pinfold import answers
from pinfold._decode import decode
from pinfold._span import seconds
from pinfold.error_codes import BY_CODE
from pinfold.errors import ApiError, InvalidArgumentError, ProtocolError
from pinfold.options import Span, StartOptions

T = TypeVar("T")

# Variables that pinfold sets in every process: a new process gets its own.
NOT_PASSED_ON = {"PINFOLD_ID", "PINFOLD_OWNER", "PINFOLD_MARK", "PINFOLD_HOME"}
# How much of a response that is not of this API is shown.
MAX_EXCERPT = 200


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request, and the class of its answer."""

    method: Literal["GET", "POST", "DELETE"]
    target: str
    answer: type[T]
    # Not shown: it has the values of environment variables.
    body: bytes | None = field(default=None, repr=False)
    repeatable: bool = True
    """Whether sending it twice has the same effect as once."""
    wait: float = 0
    """How long the daemon may wait before it answers, in seconds."""

    def parse(self, status: int, headers: Mapping[str, str], body: bytes) -> T:
        """The answer; raises ApiError or ProtocolError."""
        value = parse_json(body)
        if not 200 <= status < 300:
            raise api_error(status, headers.get("retry-after"), value, body)
        if value is None:
            raise ProtocolError(f"the answer to {self.method} {self.target} is not JSON: {excerpt(body)}")
        return decode(self.answer, value)


@dataclass(frozen=True)
class RawPage:
    """Bytes of output, with what the daemon says about them in headers."""

    data: bytes = field(repr=False)
    cursor: int
    next_cursor: int
    end: int
    gap: answers.Range | None
    closed: bool
    status: str


@dataclass(frozen=True)
class RawCall(Call[RawPage]):
    """A request for bytes."""

    def parse(self, status: int, headers: Mapping[str, str], body: bytes) -> RawPage:
        if not 200 <= status < 300:
            raise api_error(status, headers.get("retry-after"), parse_json(body), body)
        try:
            cursor, following, end = (int(headers[f"pinfold-{name}"]) for name in ("cursor", "next-cursor", "end"))
            gap = None
            if "pinfold-gap-from" in headers:
                gap = answers.Range(from_=int(headers["pinfold-gap-from"]), to=int(headers["pinfold-gap-to"]))
            closed = headers["pinfold-closed"] == "true"
            return RawPage(body, cursor, following, end, gap, closed, headers["pinfold-status"])
        except (KeyError, ValueError) as error:
            raise ProtocolError(
                f"the answer to {self.method} {self.target} lacks a header, or has an unusable one: {error}: compare "
                "`pinfold daemon status` with the version of this package"
            ) from None


def parse_json(body: bytes) -> object:
    try:
        return json.loads(body)
    except ValueError:
        return None


def api_error(status: int, retry_after: str | None, value: object, body: bytes) -> ApiError | ProtocolError:
    if not isinstance(value, dict):
        return ProtocolError(f"not an answer of pinfold: status {status}: {excerpt(body)}")
    error = cast(dict[str, object], value)
    code, message, id = error.get("code"), error.get("message"), error.get("id")
    if not isinstance(code, str) or not isinstance(message, str):
        return ProtocolError(f"not an answer of pinfold: status {status}: {excerpt(body)}")
    after = float(retry_after) if retry_after is not None and retry_after.isdecimal() else None
    return BY_CODE.get(code, ApiError)(code, message, status, id if isinstance(id, str) else None, after)


def excerpt(body: bytes) -> str:
    return repr(body[:MAX_EXCERPT].decode(errors="replace"))


def segment(name: str) -> str:
    """A name as one segment of a path."""
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgumentError(f"{name!r} is not a name: pass text")
    if name in ("", ".", ".."):
        raise InvalidArgumentError(f"{name!r} is not a name")
    return quote(name, safe="", errors="surrogateescape")


def of_process(id: str, verb: str = "") -> str:
    return f"/v1/processes/{segment(id)}{verb}"


def get(answer: type[T], path: str, query: Mapping[str, Any] | None = None, wait: float = 0) -> Call[T]:
    pairs = [pair for name, value in (query or {}).items() for pair in query_pairs(name, value)]
    try:
        target = f"{path}?{urlencode(pairs)}" if pairs else path
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"a parameter is not valid text: {error}") from None
    return Call("GET", target, answer, wait=wait)


def query_pairs(name: str, value: Any) -> list[tuple[str, str]]:
    if value is None:
        return []
    if isinstance(value, bool):
        return [(name, "true" if value else "false")]
    if isinstance(value, timedelta):
        return query_pairs(name, seconds(value))
    if isinstance(value, (list, tuple)):
        return [pair for item in cast(Sequence[Any], value) for pair in query_pairs(name, item)]
    if isinstance(value, Mapping):
        return [(name, f"{key}={item}") for key, item in cast(Mapping[str, str], value).items()]
    if isinstance(value, float):
        # The daemon reads no exponents.
        return [(name, f"{value:f}")]
    if isinstance(value, (str, int)):
        return [(name, str(value))]
    raise InvalidArgumentError(f"{name}: {value!r} cannot be sent: pass text or a number")


def post(
    answer: type[T], path: str, body: Mapping[str, Any] | None = None, *, repeatable: bool = False, wait: float = 0
) -> Call[T]:
    return Call("POST", path, answer, None if body is None else encode(body), repeatable, wait)


def encode(body: Mapping[str, Any]) -> bytes:
    given = {name: value for name, value in body.items() if value is not None}
    try:
        text = json.dumps(given, default=encode_other, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"the request cannot be written as JSON: {error}") from None


def encode_other(value: object) -> object:
    if isinstance(value, timedelta):
        return seconds(value)
    if isinstance(value, os.PathLike):
        return os.fspath(cast("os.PathLike[str]", value))
    raise TypeError(f"{value!r} is not text, a number, a list or a dictionary")


# Starting


@dataclass(frozen=True)
class Here:
    """What a start over the socket takes over from this program."""

    cwd: str
    env: dict[str, str] = field(repr=False)

    @staticmethod
    def read() -> Here:
        """Variables that are not UTF-8 are left out, since requests are JSON."""
        try:
            cwd = os.getcwd()
        except FileNotFoundError:
            raise InvalidArgumentError("the current directory was removed: pass `cwd`") from None
        env = {name: value for name, value in os.environ.items() if name not in NOT_PASSED_ON}
        return Here(cwd, {name: value for name, value in env.items() if is_utf8(name) and is_utf8(value)})


def is_utf8(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def start_body(
    command: str | Sequence[str],
    options: StartOptions,
    *,
    local: bool,
    key: str,
    ports: Mapping[str, int | str] | Sequence[str] | None,
    lifetime: str | None,
) -> dict[str, Any]:
    """The body of a start, without `wait` and what belongs to it."""
    body: dict[str, Any] = {"lifetime": lifetime, **options, "idempotency_key": key, **program(command)}
    if ports is not None:
        body["ports"] = dict(ports) if isinstance(ports, Mapping) else {name: "lease" for name in ports}
    if local:
        here = Here.read()
        body["cwd"] = body.get("cwd") or here.cwd
        if body.get("inherit_env") is None:
            body["inherit_env"] = False
            body["env"] = {**here.env, **(options.get("env") or {})}
    return body


def program(command: str | Sequence[str]) -> dict[str, Any]:
    if isinstance(command, str):
        return {"command": command}
    if isinstance(command, Sequence) and all(isinstance(word, str) for word in command):  # pyright: ignore[reportUnnecessaryIsInstance]
        return {"argv": list(command)}
    raise InvalidArgumentError(f"{command!r} is not a command: pass a shell command as text, or a list of words")


# The daemon's minimum. Without a `wait`, it would not stop the command after it either.
MIN_START_WAIT = 0.01


def start(body: Mapping[str, Any], *, wait: float | None = None) -> Call[answers.Started]:
    """Repeatable: every start has an idempotency key."""
    wait = None if wait is None else max(wait, MIN_START_WAIT)
    return post(answers.Started, "/v1/processes", {**body, "wait": wait}, repeatable=True, wait=wait or 0)


# Looking


def show(id: str) -> Call[answers.Record]:
    return get(answers.Record, of_process(id))


def list_processes(query: Mapping[str, Any]) -> Call[answers.ProcessList]:
    return get(answers.ProcessList, "/v1/processes", query)


def output(id: str, query: Mapping[str, Any], wait: float | None = None) -> Call[answers.OutputPage]:
    return get(answers.OutputPage, of_process(id, "/output"), {**query, "wait": wait}, wait or 0)


def raw_output(id: str, query: Mapping[str, Any], wait: float | None = None) -> RawCall:
    call = get(RawPage, of_process(id, "/output"), {**query, "format": "raw", "wait": wait}, wait or 0)
    return RawCall(call.method, call.target, call.answer, wait=call.wait)


def wait(id: str, query: Mapping[str, Any], timeout: float) -> Call[answers.WaitAnswer]:
    return get(answers.WaitAnswer, of_process(id, "/wait"), {**query, "timeout": timeout}, timeout)


def wait_many(ids: Sequence[str], mode: str, until: str, timeout: float) -> Call[answers.WaitManyAnswer]:
    body = {"ids": list(ids), "mode": mode, "until": until, "timeout": timeout}
    return post(answers.WaitManyAnswer, "/v1/wait", body, repeatable=True, wait=timeout)


def screen(id: str) -> Call[answers.Screen]:
    return get(answers.Screen, of_process(id, "/screen"))


def samples(id: str, after: str | None) -> Call[answers.Samples]:
    return get(answers.Samples, of_process(id, "/samples"), {"after": after})


def search(query: Mapping[str, Any]) -> Call[answers.SearchPage]:
    # The daemon's own maximum; its default is 5s.
    return get(answers.SearchPage, "/v1/search", query, 30)


def inbox(owner: str | None, limit: int | None) -> Call[answers.Inbox]:
    return get(answers.Inbox, "/v1/inbox", {"owner": owner, "limit": limit})


def inbox_seen(through: int) -> Call[answers.SeenAnswer]:
    return post(answers.SeenAnswer, "/v1/inbox/seen", {"through": through}, repeatable=True)


# Acting on a process


def stop(id: str, signal: str | None, grace: Span | None, by: str | None) -> Call[answers.StopAnswer]:
    """Repeatable: a second stop waits for the same end. Only `already_over` may then be true."""
    body = {"signal": signal, "grace": grace, "by": by}
    return post(answers.StopAnswer, of_process(id, "/stop"), body, repeatable=True, wait=seconds(grace or 0))


def restart(id: str, signal: str | None, grace: Span | None, by: str | None) -> Call[answers.Record]:
    body = {"signal": signal, "grace": grace, "by": by}
    return post(answers.Record, of_process(id, "/restart"), body, wait=seconds(grace or 0))


def signal(id: str, signal: str | int, by: str | None) -> Call[answers.SignalAnswer]:
    return post(answers.SignalAnswer, of_process(id, "/signal"), {"signal": str(signal), "by": by})


def pause(id: str) -> Call[answers.SignalAnswer]:
    return post(answers.SignalAnswer, of_process(id, "/pause"), repeatable=True)


def resume(id: str) -> Call[answers.SignalAnswer]:
    return post(answers.SignalAnswer, of_process(id, "/resume"), repeatable=True)


def resize(id: str, rows: int, cols: int) -> Call[answers.Screen]:
    return post(answers.Screen, of_process(id, "/resize"), {"rows": rows, "cols": cols}, repeatable=True)


def handover(id: str, to: str | None, purpose: str) -> Call[answers.Record]:
    return post(answers.Record, of_process(id, "/handover"), {"to": to, "purpose": purpose})


def remove(id: str) -> Call[answers.Removed]:
    return Call("DELETE", of_process(id), answers.Removed, repeatable=False)


# Less than the daemon's maximum of 1 MiB for one request, also as base64.
MAX_INPUT = 512 << 10


def send_input(
    id: str, data: bytes, keys: Sequence[str], eof: bool, input_id: str, wait: float
) -> Call[answers.InputAnswer]:
    """Repeatable: the daemon writes input with the same id once."""
    encoded = base64.b64encode(data).decode() if data else None
    body = {"base64": encoded, "keys": list(keys), "eof": eof, "input_id": input_id, "wait": wait}
    return post(answers.InputAnswer, of_process(id, "/input"), body, repeatable=True, wait=wait)


# Events


def events(query: Mapping[str, Any], wait: float) -> Call[answers.EventPage]:
    return get(answers.EventPage, "/v1/events", {**query, "wait": wait}, wait)


def ack(consumer: str, through: int) -> Call[answers.Consumer]:
    path = f"/v1/consumers/{segment(consumer)}/ack"
    return post(answers.Consumer, path, {"through": through}, repeatable=True)


def consumers() -> Call[answers.ConsumerList]:
    return get(answers.ConsumerList, "/v1/consumers")


def forget_consumer(consumer: str) -> Call[answers.Consumer]:
    return Call("DELETE", f"/v1/consumers/{segment(consumer)}", answers.Consumer, repeatable=False)


# Owners


def owners() -> Call[answers.OwnerList]:
    return get(answers.OwnerList, "/v1/owners")


def end_owner(owner: str, grace: Span | None) -> Call[answers.EndAnswer]:
    path = f"/v1/owners/{segment(owner)}/end"
    return post(answers.EndAnswer, path, {"grace": grace}, repeatable=True, wait=seconds(grace or 0))


def release_owner(owner: str) -> Call[answers.ReleaseAnswer]:
    return post(answers.ReleaseAnswer, f"/v1/owners/{segment(owner)}/release", repeatable=True)


# The daemon


def health() -> Call[answers.Health]:
    return get(answers.Health, "/healthz")


def doctor() -> Call[answers.DoctorAnswer]:
    return get(answers.DoctorAnswer, "/v1/doctor")


def gc(older_than: Span | None, dry_run: bool) -> Call[answers.GcAnswer]:
    return post(answers.GcAnswer, "/v1/gc", {"older_than": older_than, "dry_run": dry_run})


def shutdown(stop_processes: bool) -> Call[answers.ShutdownAnswer]:
    return post(answers.ShutdownAnswer, "/v1/shutdown", {"stop_processes": stop_processes})


def add_token(owner: str | None, label: str | None, expires: Span | None) -> Call[answers.TokenAnswer]:
    return post(answers.TokenAnswer, "/v1/tokens", {"owner": owner, "label": label, "expires": expires})


def tokens() -> Call[answers.TokenList]:
    return get(answers.TokenList, "/v1/tokens")


def revoke_token(id: str) -> Call[answers.Token]:
    return Call("DELETE", f"/v1/tokens/{segment(id)}", answers.Token, repeatable=False)


