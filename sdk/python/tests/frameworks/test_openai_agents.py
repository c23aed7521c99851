"""The sandbox of the OpenAI Agents SDK, with the real daemon. The SDK ships no conformance suite for sandboxes."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from agents.sandbox import Manifest
from agents.sandbox.errors import ExecTimeoutError, ExecTransportError, PtySessionNotFoundError
from agents.sandbox.session import BaseSandboxSession, SandboxSession
from daemons import kill_daemon
from pages import run_example
from trees import DETACHING, is_gone

from pinfold import AsyncPinfold, Pinfold
from pinfold.integrations import openai_agents
from pinfold.integrations.openai_agents import PinfoldSandboxClient, PinfoldSandboxSession


@pytest.fixture
def client(home: Path) -> PinfoldSandboxClient:
    return PinfoldSandboxClient(connection={"home": home})


@pytest.fixture
async def session(client: PinfoldSandboxClient, work: Path) -> AsyncIterator[SandboxSession]:
    session = await client.create(manifest=Manifest(root=str(work)))
    async with session:
        yield session


async def test_it_is_a_session_of_the_sdk(client: PinfoldSandboxClient, home: Path) -> None:
    session = await client.create()
    inner = session._inner  # pyright: ignore[reportPrivateUsage]
    assert isinstance(inner, PinfoldSandboxSession) and isinstance(inner, BaseSandboxSession)
    async with session:
        assert await session.running()
        await session.write(Path("a/b.txt"), io.BytesIO(b"\x00\xff"))
        assert (await session.exec("cat a/b.txt")).stdout == b"\x00\xff"
        await session.exec("echo from a command > c.txt")
        with await session.read(Path("c.txt")) as file:
            assert file.read() == b"from a command\n"
        assert {Path(entry.path).name for entry in await session.ls(".")} >= {"a", "c.txt"}
        root = Path(session.state.manifest.root)
    await client.delete(session)
    assert not root.exists()


async def test_streams_and_exit_codes_are_what_the_kernel_said(session: SandboxSession) -> None:
    result = await session.exec("printf 'out\\377'; printf err >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code, result.ok()) == (b"out\xff", b"err", 3, False)
    assert (await session.exec("kill -9 $$")).exit_code == 137
    assert (await session.exec("true")).ok()
    assert (await session.exec("printf", "%s", "a b $HOME", shell=False)).stdout == b"a b $HOME"


async def test_a_timeout_stops_the_whole_tree(session: SandboxSession, work: Path) -> None:
    with pytest.raises(ExecTimeoutError):
        await session.exec(DETACHING, timeout=1)
    assert is_gone(work)


async def test_a_cancelled_call_stops_the_whole_tree(session: SandboxSession, work: Path) -> None:
    task = asyncio.create_task(session.exec(DETACHING))
    while not (work / "ready").exists():
        await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert is_gone(work)


async def test_what_cannot_be_run_is_an_error_with_advice(
    session: SandboxSession, home: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ExecTransportError, match="check its name"):
        await session.exec("/nowhere/program", shell=False)
    monkeypatch.setattr(openai_agents, "MAX_OUTPUT", 1000)
    with pytest.raises(ExecTransportError, match="pinfold logs"):
        await session.exec("head -c 5000 /dev/zero")
    other = PinfoldSandboxClient(connection={"home": home / "none", "binary": "/nowhere/pinfold"})
    unreachable = await other.create(manifest=Manifest(root=str(work)))
    with pytest.raises(ExecTransportError, match="install pinfold"):
        await unreachable.exec("true")


async def test_a_terminal_is_talked_to_over_kill_9_of_the_daemon(session: SandboxSession, pf: Pinfold) -> None:
    update = await session.pty_exec_start("printf 'name? '; read name; echo hello $name", tty=True, yield_time_s=0.25)
    assert (update.exit_code, update.output) == (None, b"name? ")
    assert update.process_id is not None
    kill_daemon(pf)
    update = await session.pty_write_stdin(session_id=update.process_id, chars="ann\n", yield_time_s=30)
    assert (update.process_id, update.exit_code) == (None, 0)
    assert update.output.endswith(b"hello ann\r\n")
    with pytest.raises(PtySessionNotFoundError):
        await session.pty_write_stdin(session_id=1, chars="")


async def test_much_output_of_a_terminal_comes_in_several_updates(
    session: SandboxSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai_agents, "MAX_UPDATE", 1000)
    update = await session.pty_exec_start("head -c 1000000 /dev/zero | tr '\\0' x; exit 4", yield_time_s=30)
    seen, updates = len(update.output), 1
    while update.process_id is not None:
        update = await session.pty_write_stdin(session_id=update.process_id, chars="")
        seen, updates = seen + len(update.output), updates + 1
    assert (seen, update.exit_code) == (1_000_000, 4)
    assert updates > 1


async def test_the_end_of_a_session_stops_its_terminals(client: PinfoldSandboxClient, pf: Pinfold, work: Path) -> None:
    async with await client.create(manifest=Manifest(root=str(work))) as session:
        update = await session.pty_exec_start(DETACHING, yield_time_s=0.25)
        assert update.process_id is not None
        with pytest.raises(RuntimeError, match="stdin is not available"):
            await session.pty_write_stdin(session_id=update.process_id, chars="x")
    assert [*pf.list(status="live")] == []
    assert is_gone(work)


async def test_a_session_is_resumed_from_its_state(client: PinfoldSandboxClient, work: Path) -> None:
    async with await client.create(manifest=Manifest(root=str(work))) as first:
        await first.exec("echo kept > file")
        payload = client.serialize_session_state(first.state)
    assert payload["type"] == "pinfold"
    async with await client.resume(client.deserialize_session_state(payload)) as second:
        assert (await second.exec("cat file")).stdout == b"kept\n"


async def test_options_and_environment_of_commands(home: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    for inherit, expected in ((False, b"unset"), (True, b"secret")):
        client = PinfoldSandboxClient(connection={"home": home}, inherit_env=inherit, options={"labels": {"team": "ui"}})
        async with await client.create(manifest=Manifest(root=str(work))) as session:
            assert (await session.exec("printf ${OPENAI_API_KEY-unset}; test $HOME = $PWD")).stdout == expected
    async with AsyncPinfold(home=home) as pf:
        assert {(record.owner, record.labels["team"]) async for record in pf.list()} == {("openai-agents", "ui")}


def test_the_example_of_the_page_works_as_it_stands(home: Path, work: Path) -> None:
    run_example("openai-agents", home, work)
