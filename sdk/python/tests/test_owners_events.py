"""Owners, events and consumers; TCP with a token; the async client; the examples in docs/python.md."""

from __future__ import annotations

import asyncio
import re
import socket
from itertools import islice
from pathlib import Path

import pytest

import pinfold
from pinfold import AsyncPinfold, Exited, InvalidArgumentError, Pinfold

PAGE = Path(__file__).resolve().parents[3] / "docs" / "python.md"


def test_an_owner_sees_its_own_processes_and_ends_with_its_block(pf: Pinfold, home: Path) -> None:
    outside = pf.start("cat", stdin="pipe")
    with pf.owner("chat-7") as chat:
        process = chat.start("cat", stdin="pipe")
        kept = chat.start("cat", stdin="pipe", lifetime="keep")
        assert {record.id for record in chat.list()} == {process.id, kept.id}
        with pytest.raises(pinfold.NotFoundError):
            chat.get(outside.id)
        with chat.owner("chat-7-child") as child:
            child.start("cat", stdin="pipe")
    assert chat.ended is not None
    assert (chat.ended.stopped, chat.ended.kept, chat.ended.survivors) == ([process.id], [kept.id], [])
    assert child.ended is not None and len(child.ended.stopped) == 1
    assert pf.get(process.id).record.cause == "owner_ended"
    assert {owner.owner: owner.parent for owner in pf.owners()}["chat-7-child"] == "chat-7"


def test_an_owner_ends_when_its_block_fails(pf: Pinfold) -> None:
    owner = pf.owner("failing")
    with pytest.raises(ZeroDivisionError), owner:
        owner.start("cat", stdin="pipe")
        raise ZeroDivisionError
    assert owner.ended is not None and len(owner.ended.stopped) == 1


def test_a_process_can_be_handed_over(pf: Pinfold, home: Path) -> None:
    with Pinfold(home=home, owner="parent") as parent, Pinfold(home=home, owner="child", parent="parent") as child:
        process = child.start("cat", stdin="pipe")
        assert child.get(process.id).handover("look after it").owner == "parent"
        assert parent.get(process.id).stop().survivors == []


def test_events_without_a_consumer_are_read_from_a_number_on(pf: Pinfold) -> None:
    first, second = pf.run("true").id, pf.run("true").id
    events = [*pf.events(wait=0)]
    assert [event.process for event in events if event.completion] == [first, second]
    assert [event.seq for event in pf.events(after=events[0].seq, wait=0)] == [event.seq for event in events[1:]]
    assert [*pf.events(after="latest", wait=0)] == []
    assert {event.process for event in pf.events(process=second, wait=0)} == {second}
    with pytest.raises(InvalidArgumentError, match="without a consumer"):
        events[0].ack()


def test_a_consumer_gets_an_event_again_until_it_is_acknowledged(pf: Pinfold) -> None:
    ids = [pf.run("true").id for _ in range(3)]

    for _ in range(2):
        events = pf.events(consumer="bot", kinds="announce", lease="1ms")
        assert [event.process for event in islice(events, 3)] == ids
    first = next(pf.events(consumer="bot", kinds="announce", lease="1ms"))
    assert first.ack().cursor >= first.seq
    assert next(pf.events(consumer="bot", kinds="announce")).process == ids[1]
    assert [consumer.name for consumer in pf.consumers()] == ["bot"]
    assert pf.forget_consumer("bot").name == "bot"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_tcp_needs_a_token_and_a_token_is_bound_to_its_owner(home: Path) -> None:
    url = f"127.0.0.1:{free_port()}"
    (home / "config.toml").write_text(f'[tcp]\nlisten = "{url}"\n')
    with Pinfold(home=home) as operator:
        token = operator.add_token(owner="remote", label="test").token
        with Pinfold(url=f"http://{url}", token=token) as remote:
            assert remote.run("echo hi", env={"A": "1"}).text == "hi\n"
            assert {record.owner for record in operator.list()} == {"remote"}
            with pytest.raises(pinfold.ForbiddenError):
                remote.tokens()
        with Pinfold(url=f"http://{url}", token="wrong") as stranger, pytest.raises(pinfold.UnauthorizedError):
            stranger.health()
        assert operator.revoke_token(operator.tokens()[0].id).owner == "remote"


def test_the_daemon_can_be_examined(pf: Pinfold) -> None:
    assert pf.health().status == "ok"
    assert pf.doctor().findings
    assert pf.gc(dry_run=True).removed == []
    assert pf.inbox_seen(0).seen == 0
    assert pf.release_owner("nobody").released == 0
    process = pf.start("cat", stdin="pipe")
    assert process.samples().id == process.id


def test_the_async_client_does_the_same(async_pf: AsyncPinfold) -> None:
    async def main() -> None:
        async with async_pf as pf:
            result = await pf.run("echo hi; exit 2")
            assert (result.outcome, result.text) == (Exited(2), "hi\n")
            first, second = await asyncio.gather(pf.start("cat", stdin="pipe"), pf.start("cat", stdin="pipe"))
            await second.send(eof=True)
            assert (await pf.wait_any([first, second], "60s")).id == second.id
            async with pf.owner("chat") as chat:
                process = await chat.start("cat", stdin="pipe")
            assert (await pf.get(process.id)).record.cause == "owner_ended"
            assert {record.id async for record in pf.list()} >= {first.id, second.id}
            async for event in pf.events(consumer="bot"):
                await event.ack()
                break
            assert (await first.stop()).survivors == []

    asyncio.run(main(), debug=True)


def test_cancelling_a_wait_or_a_run_leaves_the_process_running(async_pf: AsyncPinfold) -> None:
    async def main() -> None:
        async with async_pf as pf:
            run = asyncio.create_task(pf.run("cat", stdin="pipe", name="kept"))
            async for _ in pf.events(kinds="started"):
                break
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            process = await pf.get("kept")
            wait = asyncio.create_task(process.wait())
            chunks = process.output(follow=True)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(anext(chunks), 0.05)
            wait.cancel()
            with pytest.raises(asyncio.CancelledError):
                await wait
            assert (await process.refresh()).status == "running"
            await process.send("still here\n", eof=True)
            assert [chunk.text async for chunk in chunks] == ["still here\n"]
            assert len(asyncio.all_tasks()) == 1

    asyncio.run(main(), debug=True)


def examples() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)


@pytest.mark.parametrize("number", range(len(examples())))
def test_the_examples_of_the_page_work_as_they_stand(
    number: int, home: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PINFOLD_HOME", str(home))
    exec(compile(examples()[number], f"{PAGE}, example {number + 1}", "exec"), {"__name__": "__main__"})
