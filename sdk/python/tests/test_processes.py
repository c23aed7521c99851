"""Running, waiting, reading, sending and stopping, against a real daemon."""

from __future__ import annotations

import hashlib
import os
from datetime import timedelta
from pathlib import Path

import pytest

import pinfold
from pinfold import EndedBeforeError, Exited, ExitError, NotReadyError, Pinfold, Signaled, WaitTimeout


def test_a_run_returns_outcome_cause_and_output(pf: Pinfold) -> None:
    result = pf.run("echo out; echo err >&2; exit 3", wait="60s", budget="8k")
    assert (result.outcome, result.cause, result.ok) == (Exited(3), "on_its_own", False)
    assert (result.text, result.omitted) == ("out\nerr\n", None)
    assert pf.get(result.id).record.outcome == Exited(3)


def test_a_list_of_words_is_run_without_a_shell(pf: Pinfold) -> None:
    assert pf.run(["printf", "%s|", "a b", "$HOME"]).text == "a b|$HOME|"


def test_a_run_has_the_directory_and_the_environment_of_the_program(
    pf: Pinfold, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SDK_COLOUR", "blue")
    monkeypatch.setenv("SDK_SHAPE", "round")
    monkeypatch.setenv("SDK_NOT_UTF8", os.fsdecode(b"\xff"))
    result = pf.run('pwd; echo "$SDK_COLOUR $SDK_SHAPE ${SDK_NOT_UTF8-unset}"', env={"SDK_SHAPE": None})
    assert result.text == f"{work}\nblue  unset\n"
    assert pf.run('echo "${SDK_COLOUR-unset}"', inherit_env=False).text == "unset\n"


def test_a_run_that_outlasts_its_wait_goes_on(pf: Pinfold) -> None:
    result = pf.run("echo begun; exec cat", stdin="pipe", wait="200ms")
    assert result.outcome is None
    with pytest.raises(WaitTimeout) as timeout:
        result.check()
    assert timeout.value.record.id == result.id
    process = pf.get(result.id)
    process.send(eof=True)
    assert process.wait().outcome == Exited(0)


def test_a_run_can_be_stopped_when_its_wait_ends(pf: Pinfold) -> None:
    result = pf.run("cat", stdin="pipe", wait="100ms", on_wait_timeout="stop")
    assert pf.get(result.id).wait(until="finished").cause == "time_limit"


def test_check_raises_with_record_and_output(pf: Pinfold) -> None:
    assert pf.run("true", check=True).ok
    with pytest.raises(ExitError, match="exited with code 7") as error:
        pf.run("echo why; exit 7", check=True)
    assert error.value.record.outcome == Exited(7)
    assert error.value.result.text == "why\n"


def test_the_time_limit_ends_the_process_and_is_its_cause(pf: Pinfold) -> None:
    process = pf.start("exec cat", stdin="pipe", time_limit=timedelta(milliseconds=200), grace=0)
    record = process.wait()
    assert isinstance(record.outcome, Signaled)
    assert record.cause == "time_limit"


def test_a_wait_that_times_out_leaves_the_process_running(pf: Pinfold) -> None:
    process = pf.start("cat", stdin="pipe")
    with pytest.raises(WaitTimeout) as timeout:
        process.wait(timeout=0)
    assert isinstance(timeout.value, TimeoutError)
    assert process.refresh().status == "running"
    assert process.stop().survivors == []


def test_waits_for_a_pattern_for_output_and_for_readiness(pf: Pinfold) -> None:
    echo = pf.start("cat", stdin="pipe")
    echo.send("port 4711\n")
    match = echo.wait_until("match", "60s", pattern=r"port \d+")
    assert match.matched == "port 4711"
    ready = pf.start("echo up; exec cat", stdin="pipe", ready={"output": "up"})
    assert ready.wait_ready("60s").ready is not None
    never = pf.start("exec cat", stdin="pipe", ready={"output": "up", "timeout": "100ms"})
    with pytest.raises(NotReadyError):
        never.wait_ready("60s")
    with pytest.raises(EndedBeforeError):
        pf.start("true").wait_until("match", "60s", pattern="never")
    assert pf.wait_any([echo, pf.start("true")], "60s").record.command == "true"
    echo.send(eof=True)
    ready.send(eof=True)
    assert [done.record.outcome for done in pf.wait_all([echo, ready], "60s")] == [Exited(0), Exited(0)]
    with pytest.raises(WaitTimeout):
        pf.wait_any([never], timeout=0)


def test_output_is_followed_in_order_to_its_end(pf: Pinfold) -> None:
    process = pf.start("cat", stdin="pipe")
    chunks = process.output(follow=True)
    seen = ""
    for line in ("one\n", "zwei äöü\n", "three\n"):
        process.send(line)
        while not seen.endswith(line):
            chunk = next(chunks)
            assert chunk.cursor == len(seen.encode())
            seen += chunk.text
            assert chunk.next_cursor == len(seen.encode())
    process.send(eof=True)
    assert [*chunks] == []
    assert "".join(chunk.text for chunk in process.output(cursor=4)) == "zwei äöü\nthree\n"
    assert "".join(chunk.text for chunk in process.output(tail="1 lines")) == "three\n"
    assert process.read(grep="^t").matches is not None


def test_a_follow_of_one_stream_has_only_that_stream(pf: Pinfold) -> None:
    process = pf.start("echo out; echo err >&2; echo out", streams="separate")
    assert "".join(chunk.text for chunk in process.output(follow=True, stream="stdout")) == "out\nout\n"
    assert "".join(chunk.text for chunk in process.output(follow=True, stream="stderr")) == "err\n"


def test_huge_output_is_read_completely_with_its_gap_counted(pf: Pinfold) -> None:
    """20 MB, of which 1 MB is kept: text and gaps together are all of it."""
    process = pf.start("yes 0123456789abcde | head -c 20000000", output_limit="1M")
    process.wait(until="finished")
    position, shown = 0, 0
    for chunk in process.output(follow=True):
        if chunk.gap:
            assert chunk.gap.from_ == position
            position = chunk.gap.to
        assert chunk.cursor == position
        position, shown = chunk.next_cursor, shown + len(chunk.text)
    assert position == 20_000_000
    assert shown == 20_000_000 - process.refresh().output.dropped
    assert len(process.read(budget="8k").text) <= 8192


def test_much_input_arrives_once_and_whole(pf: Pinfold) -> None:
    process = pf.start("sha256sum", stdin="pipe")
    process.send(b"\x00\xff" * 1_000_000, eof=True)
    process.wait()
    expected = hashlib.sha256(b"\x00\xff" * 1_000_000).hexdigest()
    assert process.read().text.startswith(expected)


def test_input_that_nobody_reads_times_out(pf: Pinfold) -> None:
    process = pf.start("read line; exec sleep 600", stdin="pipe")
    with pytest.raises(WaitTimeout, match="does not read its input"):
        process.send("\n" + "x" * (4 << 20), wait="200ms")
    assert process.stop(grace=0).survivors == []


def test_a_terminal_has_a_screen_keys_and_a_size(pf: Pinfold) -> None:
    process = pf.start("printf 'name? '; read name; echo hello $name; exec cat", pty={"rows": 10, "cols": 40})
    process.wait_until("input", "60s")
    process.send("ann", keys=["enter"])
    process.wait_until("match", "60s", pattern="hello ann")
    assert process.screen().lines[0] == "name? ann"
    assert process.resize(20, 60).size.cols == 60
    process.send(keys=["ctrl+c"])
    assert process.wait("60s").outcome == Signaled(2, "INT", False)


def test_stop_signal_pause_resume_and_remove(pf: Pinfold) -> None:
    process = pf.start("trap 'echo usr1' USR1; echo set; while :; do read line; done", stdin="pipe")
    process.wait_until("match", "60s", pattern="set")
    assert process.pause().record.paused
    assert not process.resume().record.paused
    assert process.signal("USR1").reached >= 1
    process.wait_until("match", "60s", pattern="usr1")
    with pytest.raises(pinfold.StillRunningError):
        process.remove()
    stopped = process.stop(by="test", grace="100ms")
    assert (stopped.survivors, stopped.record.cause, stopped.record.stopped_by) == ([], "stop_requested", "test")
    assert process.remove().id == process.id
    with pytest.raises(pinfold.NotFoundError) as missing:
        process.refresh()
    assert (missing.value.status, missing.value.code) == (404, "not_found")


def test_a_restart_is_a_new_process_with_the_same_ports(pf: Pinfold) -> None:
    first = pf.start("echo $PORT; exec cat", stdin="pipe", ports=["PORT"], restart="on_failure")
    second = first.restart(grace=0)
    assert second.id != first.id
    assert second.refresh().ports == first.ports
    assert 20000 <= first.ports["PORT"] < 30000


def test_lists_filter_page_and_search(pf: Pinfold) -> None:
    odd = [pf.run(f"echo line {i}", labels={"team": "ui", "odd": str(i % 2)}).id for i in range(5)][1::2]
    assert {record.id for record in pf.list(labels={"team": "ui", "odd": "1"})} == set(odd)
    assert len([*pf.list(limit=3)]) == 3
    assert [*pf.list(status="live")] == []
    assert [hit.text for hit in pf.search("line [34]", labels={"odd": "1"})] == ["line 3"]
    assert pf.inbox().failed == 0


def test_names_with_unusual_characters_are_found(pf: Pinfold) -> None:
    names = ["a/b", "ü ö", "../x", "a:b@c"]
    for name in names:
        assert pf.start("true", name=name).id == pf.get(name).id
    for name in ("", ".", ".."):
        with pytest.raises(pinfold.InvalidArgumentError):
            pf.get(name)


def test_an_idempotency_key_starts_one_process(pf: Pinfold) -> None:
    ids = {pf.start("true", idempotency_key="deploy-42").id for _ in range(3)}
    assert len(ids) == 1
    with pytest.raises(pinfold.KeyReusedError) as reused:
        pf.start("false", idempotency_key="deploy-42")
    assert "fresh key" in reused.value.message
    assert reused.value.id in ids
    assert len({pf.start("true").id for _ in range(3)}) == 3
