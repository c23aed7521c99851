"""Output as bytes, and the reference sample of the API as it stands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from daemons import kill_daemon
from servers import Playback

from pinfold import AsyncPinfold, Exited, ExitError, Pinfold, ProtocolError
from pinfold._transport import AsyncTransport, Transport


def test_bytes_are_what_the_process_wrote(pf: Pinfold) -> None:
    process = pf.start(r"printf 'a\0\377\303'; printf '\251' ; printf err >&2", streams="separate")
    process.wait(until="closed")
    assert b"".join(chunk.data for chunk in process.output_bytes(stream="stdout")) == b"a\0\xff\xc3\xa9"
    assert b"".join(chunk.data for chunk in process.output_bytes(follow=True, stream="stderr")) == b"err"


def test_a_follow_of_bytes_goes_on_at_its_cursor_when_the_daemon_is_killed(pf: Pinfold) -> None:
    process = pf.start("cat", stdin="pipe")
    chunks = process.output_bytes(follow=True)
    seen = b""
    for piece in (b"one\xff", b"two\x00", b"three"):
        process.send(piece)
        while not seen.endswith(piece):
            chunk = next(chunks)
            assert chunk.cursor == len(seen)
            seen += chunk.data
            assert chunk.next_cursor == len(seen)
        kill_daemon(pf)
    process.send(eof=True)
    assert [*chunks] == []
    assert b"".join(chunk.data for chunk in process.output_bytes(cursor=4)) == b"two\x00three"


def test_bytes_that_were_dropped_are_a_gap(pf: Pinfold) -> None:
    process = pf.start("yes 0123456789abcde | head -c 20000000", output_limit="1M")
    process.wait(until="finished")
    position = shown = 0
    for chunk in process.output_bytes():
        position = chunk.gap.to if chunk.gap else position
        assert chunk.cursor == position
        position, shown = chunk.next_cursor, shown + len(chunk.data)
    assert (position, shown) == (20_000_000, 20_000_000 - process.refresh().output.dropped)


@pytest.mark.parametrize("header", ["", "pinfold-cursor: 0\r\n", "pinfold-cursor: many\r\n"])
def test_bytes_without_their_headers_are_a_protocol_error(pf: Pinfold, header: str) -> None:
    record = pf.run("true").record
    answer = f"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n{header}connection: close\r\n\r\nx".encode()
    with Playback(answer) as server, Pinfold(home=server.home, start_daemon=False) as client:
        process = pf.get(record.id)
        process._caller = client._caller  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(ProtocolError, match="header"):
            next(process.output_bytes())


def test_certificates_are_checked_for_https_and_only_there(home: Path) -> None:
    """Loading them takes longer than all else that a client does."""
    for kind in (Transport, AsyncTransport):
        for tls in (True, False):
            context = kind(None, tls=tls)._pool._ssl_context  # pyright: ignore
            assert bool(context.verify_mode) is tls  # pyright: ignore
    for url, tls in (("http://h", False), ("HTTP://h", False), ("https://h", True), ("HTTPS://h", True)):
        with Pinfold(url=url) as client:
            pool = client._caller.connection._client._transport._pool  # pyright: ignore
            assert bool(pool._ssl_context.verify_mode) is tls  # pyright: ignore
            assert not client.is_local
    assert AsyncPinfold(home=home).is_local


def test_a_record_has_the_request_that_repeats_it_and_its_sandbox(pf: Pinfold) -> None:
    process = pf.start("cat", stdin="pipe", sandbox={"profile": "read-only", "missing": "best_effort"}, time_limit="1h")
    record = process.refresh()
    assert record.request is not None and record.request["command"] == "cat"
    assert record.sandbox is not None and record.sandbox.asked.profile == "read-only"


PROGRAMS = {
    "make": 'echo "make $*"; [ "$1" != lint ]',
    "npm": "exec python3 -c '\nimport os, socketserver, sys\n"
    'server = socketserver.TCPServer(("127.0.0.1", int(os.environ["PORT"])), None)\n'
    'print("up", flush=True)\nprint("got", sys.stdin.readline(), flush=True)\nsys.stdin.read()\'',
    "a": "exec cat",
    "b": "exit 4",
    "pytest": "exec sleep 600",
}


def test_the_sample_of_the_reference_works(home: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Line by line, except that `stdin="pipe"` asks for an input: without it a process has none, and `send` says so."""
    for name, script in PROGRAMS.items():
        (work / name).write_text(f"#!/bin/sh\n{script}\n")
        (work / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{work}:{os.environ['PATH']}")
    with Pinfold(owner="ci", home=home) as pf:
        r = pf.run("make test", wait="60s", budget="8k")
        assert (r.outcome, r.cause, r.text, r.omitted) == (Exited(0), "on_its_own", "make test\n", None)
        with pytest.raises(ExitError) as error:
            pf.run("make lint", check=True)
        assert error.value.record.outcome == Exited(1)
        web = pf.start("npm run dev", name="web", ports=["PORT"], time_limit="2h", stdin="pipe")
        web.wait_ready(timeout="30s")
        web.send("r\n")
        seen = ""
        for chunk in web.output(follow=True):
            assert (chunk.cursor, chunk.gap) == (len(seen), None)
            seen += chunk.text
            if "got r" in seen:
                break
        assert web.stop().survivors == []
        first = pf.wait_any([pf.start("a", stdin="pipe"), pf.start("b")], timeout="10m")
        assert first.record.outcome == Exited(4)
        for event in pf.events(consumer="bot"):
            event.ack()
            break
        with pf.owner("chat-7") as chat:
            chat.start("pytest -f")
        assert chat.ended is not None and len(chat.ended.stopped) == 1
