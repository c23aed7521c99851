"""Daemons that are old, new, broken or silent: typed errors, and no hang."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import pytest
from servers import Playback, json_response

import pinfold
from pinfold import ApiError, AsyncPinfold, HttpTimeout, Pinfold, ProtocolError, UnreachableError

HEALTH: dict[str, object] = {
    "status": "ok", "version": "9", "pid": 1, "home": "/h", "socket": "/s", "tcp": None, "started_at": "now", "live": 0,
    "containment": "cgroup", "no_cgroup": None, "troubles": [], "recovering": False, "of_a_newer_daemon": {"a": 1},
}  # fmt: skip


def client(server: Playback) -> Pinfold:
    return Pinfold(home=server.home, start_daemon=False, http_timeout="300ms")


def test_unknown_fields_are_ignored_and_missing_nullable_ones_are_none() -> None:
    old = {name: value for name, value in HEALTH.items() if name not in ("tcp", "no_cgroup", "notes")}
    with Playback(json_response(json.dumps(old))) as server, client(server) as pf:
        health = pf.health()
    assert (health.version, health.tcp, health.notes) == ("9", None, [])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"version": 9}, "version: expected str, got int"),
        ({"recovering": 0}, "recovering: expected bool, got int"),
        ({"live": True}, "live: expected int, got bool"),
        ({"troubles": ["a", None]}, "troubles.1: expected str, got NoneType"),
        ({"containment": None}, "containment: expected str, got NoneType"),
    ],
)
def test_a_field_of_a_wrong_type_is_named(change: dict[str, object], problem: str) -> None:
    with Playback(json_response(json.dumps(HEALTH | change))) as server, client(server) as pf:
        with pytest.raises(ProtocolError, match=problem):
            pf.health()


def test_a_missing_field_is_named() -> None:
    old = {name: value for name, value in HEALTH.items() if name != "version"}
    with Playback(json_response(json.dumps(old))) as server, client(server) as pf:
        with pytest.raises(ProtocolError, match="the field `version` is missing"):
            pf.health()


@pytest.mark.parametrize("body", ["", "[]", "null", "7", "<html>", '{"a":', "\ud83d".encode("utf-16", "surrogatepass").hex()])
def test_an_answer_that_is_not_of_pinfold_is_a_protocol_error(body: str) -> None:
    with Playback(json_response(body)) as server, client(server) as pf, pytest.raises(ProtocolError):
        pf.health()
    with Playback(json_response(body, "500 Oops")) as server, client(server) as pf, pytest.raises(ProtocolError):
        pf.health()


def test_an_error_has_the_class_of_its_code_and_the_advice_of_the_daemon() -> None:
    body = json.dumps({"code": "limit_reached", "message": "too many: stop some", "id": "k3v9x2"})
    refusal = json_response(body, "429 Too Many Requests", "retry-after: 7\r\n")
    with Playback(refusal) as server, client(server) as pf:
        with pytest.raises(pinfold.LimitReachedError) as error:
            pf.health()
        assert len(server.requests) == 1
    assert (str(error.value), error.value.id, error.value.retry_after) == ("too many: stop some", "k3v9x2", 7)


def test_a_code_that_is_not_known_yet_is_an_api_error() -> None:
    refusal = json_response('{"code": "from_the_future", "message": "m"}', "418 Teapot")
    with Playback(refusal) as server, client(server) as pf, pytest.raises(ApiError) as error:
        pf.health()
    assert (type(error.value), error.value.code, error.value.status) == (ApiError, "from_the_future", 418)


def test_a_daemon_that_recovers_is_asked_again() -> None:
    recovering = json_response('{"code": "recovering", "message": "m"}', "503 Service Unavailable", "retry-after: 1\r\n")
    with Playback(recovering, recovering, json_response(json.dumps(HEALTH))) as server, client(server) as pf:
        assert pf.health().version == "9"
        assert len(server.requests) == 3
    with Playback(recovering) as server, client(server) as pf, pytest.raises(pinfold.RecoveringError):
        pf.gc()


def test_an_answer_that_breaks_off_is_asked_for_again_and_then_given_up() -> None:
    half = json_response(json.dumps(HEALTH))[:-10]
    with Playback(half, b"", json_response(json.dumps(HEALTH))) as server, client(server) as pf:
        assert pf.health().version == "9"
    with Playback(half) as server, client(server) as pf, pytest.raises(UnreachableError, match="gave up"):
        pf.health()
    with Playback(b"not HTTP at all\r\n\r\n") as server, client(server) as pf, pytest.raises(UnreachableError):
        pf.health()


def test_what_is_not_safe_to_repeat_is_sent_once() -> None:
    with Playback(b"") as server, client(server) as pf:
        with pytest.raises(UnreachableError, match="may have been carried out"):
            pf.gc()
        assert len(server.requests) == 1


def until_closed(connection: socket.socket) -> None:
    connection.recv(1)


def test_a_daemon_that_never_answers_is_a_timeout() -> None:
    with Playback(until_closed) as server, client(server) as pf, pytest.raises(HttpTimeout, match="http_timeout"):
        pf.health()

    async def ask(home: Path) -> None:
        async with AsyncPinfold(home=home, start_daemon=False, http_timeout=0.3) as pf:
            with pytest.raises(HttpTimeout):
                await pf.health()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(pf.health(), 0.1)

    with Playback(until_closed) as server:
        asyncio.run(ask(server.home), debug=True)


def test_a_stopped_half_of_the_stream_is_a_timeout() -> None:
    def half_closed(connection: socket.socket) -> None:
        connection.sendall(json_response(json.dumps(HEALTH))[:-10])
        connection.recv(1)

    with Playback(half_closed) as server, client(server) as pf, pytest.raises(HttpTimeout):
        pf.health()


def test_a_dead_socket_and_an_unusable_address_are_errors(tmp_path: Path) -> None:
    (tmp_path / "socket").write_text("not a socket")
    with Pinfold(home=tmp_path, start_daemon=False) as pf, pytest.raises(UnreachableError):
        pf.health()
    with Pinfold(home=tmp_path / ("x" * 200), start_daemon=False) as pf, pytest.raises(UnreachableError):
        pf.health()
    with Pinfold(url="http://127.0.0.1:1") as pf, pytest.raises(UnreachableError, match="check the address"):
        pf.health()
    for url in ("ftp://127.0.0.1", "nonsense", "http://[::1"):
        with pytest.raises(pinfold.InvalidArgumentError), Pinfold(url=url) as pf:
            pf.health()
