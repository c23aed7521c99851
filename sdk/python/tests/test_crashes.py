"""The daemon is killed with -9 in the middle of something, and the client goes on."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import pytest
from daemons import DEADLINE, ends, kill_daemon
from servers import LosingProxy

from pinfold import AsyncPinfold, Exited, NotInstalledError, Pinfold, Result, UnreachableError


def test_a_follow_goes_on_at_its_cursor_when_the_daemon_is_killed(pf: Pinfold, work: Path) -> None:
    os.mkfifo("go")
    process = pf.start("echo first; read line < go; echo $line; read line < go; echo $line")
    chunks = process.output(follow=True)
    seen = [next(chunks)]
    pids: set[int] = set()
    for line in ("second", "third"):
        pids.add(kill_daemon(pf))
        Path("go").write_text(f"{line}\n")
        seen.append(next(chunks))
    pids.add(pf.health().pid)
    seen += chunks
    assert "".join(chunk.text for chunk in seen) == "first\nsecond\nthird\n"
    assert [chunk.cursor for chunk in seen[1:]] == [chunk.next_cursor for chunk in seen[:-1]]
    assert all(chunk.gap is None for chunk in seen)
    assert len(pids) == 3
    assert process.wait().outcome == Exited(0)


def test_a_follow_that_waits_for_output_survives_the_daemon(pf: Pinfold, home: Path) -> None:
    """The daemon is killed while the request of the follow is open."""
    process = pf.start("cat", stdin="pipe")
    with ThreadPoolExecutor() as pool:
        text = pool.submit(lambda: "".join(chunk.text for chunk in process.output(follow=True)))
        with Pinfold(home=home) as other:
            handle = other.get(process.id)
            handle.send("a\n")
            kill_daemon(other)
            handle.send("b\n", eof=True)
        assert text.result(DEADLINE) == "a\nb\n"


def test_a_run_whose_daemon_is_killed_runs_once_and_returns_its_result(pf: Pinfold, home: Path, work: Path) -> None:
    os.mkfifo("go")
    with ThreadPoolExecutor() as pool, Pinfold(home=home) as other:
        run = pool.submit(pf.run, "echo once >> ran; read line < go; echo $line; exit 5", wait="60s")
        started = next(other.events(kinds="started"))
        kill_daemon(other)
        Path("go").write_text("done\n")
        result: Result = run.result(DEADLINE)
    assert (result.id, result.outcome, result.text) == (started.process, Exited(5), "done\n")
    assert Path("ran").read_text() == "once\n"
    assert len([*pf.list()]) == 1


def test_a_start_whose_answer_is_lost_is_repeated_and_starts_one_process(pf: Pinfold, home: Path, work: Path) -> None:
    pf.health()
    with LosingProxy(home / "socket") as proxy, Pinfold(home=proxy.home, start_daemon=False) as client:
        process = client.start("echo once >> ran")
        assert process.wait().outcome == Exited(0)
        assert proxy.lost == 1
    assert [record.id for record in pf.list()] == [process.id]
    assert Path("ran").read_text() == "once\n"


def test_a_signal_whose_answer_is_lost_is_not_repeated(pf: Pinfold, home: Path, work: Path) -> None:
    process = pf.start("trap 'echo hup' HUP; echo set; while :; do read line; done", stdin="pipe")
    process.wait_until("match", pattern="set")
    with LosingProxy(home / "socket", path="/signal") as proxy, Pinfold(home=proxy.home, start_daemon=False) as client:
        with pytest.raises(UnreachableError, match="may have been carried out"):
            client.get(process.id).signal("HUP")
    process.wait_until("match", pattern="hup")
    process.stop(grace=0)
    assert process.read().text == "set\nhup\n"


def test_waits_and_events_go_on_when_the_daemon_is_killed(pf: Pinfold, home: Path) -> None:
    process = pf.start("cat", stdin="pipe")
    with ThreadPoolExecutor() as pool, Pinfold(home=home) as other:
        wait = pool.submit(pf.wait_any, [process])
        events = pool.submit(lambda: [event.kind for event in islice(pf.events(kinds="started,finished", limit=1), 2)])
        kill_daemon(other)
        other.get(process.id).send(eof=True)
        assert wait.result(DEADLINE).record.outcome == Exited(0)
        assert events.result(DEADLINE) == ["started", "finished"]


def test_many_clients_start_one_daemon(home: Path) -> None:
    barrier = threading.Barrier(6)

    def ask() -> int:
        with Pinfold(home=home) as client:
            barrier.wait(DEADLINE)
            return client.health().pid

    with ThreadPoolExecutor(6) as pool:
        pids = {future.result(DEADLINE) for future in [pool.submit(ask) for _ in range(6)]}
    assert len(pids) == 1


def test_an_async_follow_goes_on_when_the_daemon_is_killed(async_pf: AsyncPinfold, pf: Pinfold, work: Path) -> None:
    os.mkfifo("go")

    async def main() -> str:
        async with async_pf as client:
            process = await client.start("echo first; read line < go; echo $line")
            text = ""
            async for chunk in process.output(follow=True):
                if not text:
                    await asyncio.to_thread(kill_daemon, pf)
                    await asyncio.to_thread(Path("go").write_text, "second\n")
                text += chunk.text
            assert (await process.wait()).outcome == Exited(0)
            return text

    assert asyncio.run(main(), debug=True) == "first\nsecond\n"


def test_without_a_program_the_error_says_what_to_install(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PINFOLD_BINARY")
    monkeypatch.setenv("PATH", "/nowhere")
    with Pinfold(home=home) as client, pytest.raises(NotInstalledError, match="install pinfold with"):
        client.health()


def test_a_daemon_that_cannot_start_says_why(home: Path) -> None:
    (home / "config.toml").write_text("nonsense = 1\n")
    with Pinfold(home=home) as client, pytest.raises(UnreachableError, match="nonsense"):
        client.health()


def test_without_permission_to_start_it_a_missing_daemon_is_an_error(home: Path) -> None:
    with Pinfold(home=home, start_daemon=False) as client, pytest.raises(UnreachableError, match="check the address"):
        client.health()


def test_a_home_with_a_long_path_works(home: Path) -> None:
    long = home / ("long-" * 30)
    long.mkdir(mode=0o700)

    async def ask() -> str:
        async with AsyncPinfold(home=long) as client:
            return (await client.run("echo async")).text

    with Pinfold(home=long) as client:
        assert client.run("echo sync").text == "sync\n"
        assert asyncio.run(ask(), debug=True) == "async\n"
        with ends(client.health().pid):
            assert client.shutdown(stop_processes=True).survivors == []
