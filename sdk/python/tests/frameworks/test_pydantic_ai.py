"""The public conformance suite of Pydantic AI, and what it does not cover, with the real daemon."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from daemons import kill_daemon
from pages import run_example
from pydantic_ai.messages import WorkspaceRef
from pydantic_ai.workspaces import (
    Workspace,
    WorkspaceBackend,
    WorkspaceOutputLimitError,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite
from trees import DETACHING, is_gone

from pinfold import NotInstalledError, Pinfold
from pinfold.integrations import pydantic_ai as integration
from pinfold.integrations.pydantic_ai import PinfoldWorkspace


@pytest.fixture
def make(home: Path) -> Iterator[Callable[..., PinfoldWorkspace]]:
    made: list[PinfoldWorkspace] = []

    def workspace(*args: object, **options: object) -> PinfoldWorkspace:
        made.append(PinfoldWorkspace(*args, connection={"home": home}, **options))  # pyright: ignore
        return made[-1]

    yield workspace
    for one in made:
        if one.ref and "pinfold-workspace-" in one.ref.id:
            shutil.rmtree(one.ref.id, ignore_errors=True)


class TestConformance(WorkspaceBackendSuite):
    @pytest.fixture
    def backend(self, make: Callable[..., PinfoldWorkspace], work: Path) -> WorkspaceBackend:
        return make(work)

    @pytest.fixture
    def fresh_backend(self, make: Callable[..., PinfoldWorkspace]) -> Callable[[], WorkspaceBackend]:
        return make

    @pytest.fixture
    def attach_backend(self, make: Callable[..., PinfoldWorkspace]) -> Callable[[WorkspaceRef], WorkspaceBackend]:
        return lambda ref: make(ref=ref)

    @pytest.fixture
    def destroy_environment(self) -> Callable[[WorkspaceBackend], Awaitable[None]]:
        async def destroy(backend: WorkspaceBackend) -> None:
            assert backend.ref is not None
            shutil.rmtree(backend.ref.id)

        return destroy


async def test_a_timeout_and_a_cancelled_call_stop_the_whole_tree(make: Callable[..., PinfoldWorkspace], work: Path) -> None:
    workspace = make(work)
    with pytest.raises(WorkspaceTimeoutError) as timeout:
        await workspace.run(f"echo begun; {DETACHING}", shell=True, timeout=1)
    assert timeout.value.stdout == "begun\n"
    assert is_gone(work)
    (work / "ready").unlink()
    task = asyncio.create_task(workspace.run(DETACHING, shell=True))
    while not (work / "ready").exists():
        await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert is_gone(work)


async def test_a_run_cancelled_while_it_starts_leaves_nothing_running(
    make: Callable[..., PinfoldWorkspace], pf: Pinfold, work: Path
) -> None:
    workspace = make(work)
    await workspace.working_dir()
    tasks = asyncio.all_tasks()
    for milliseconds in range(20):
        task = asyncio.create_task(workspace.run(["sleep", "600"]))
        # At another point each time: before, while and after it is started.
        await asyncio.sleep(milliseconds / 1000)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [record.command for record in pf.list(status="live")] == []
    assert asyncio.all_tasks() == tasks


async def test_a_run_over_kill_9_of_the_daemon_has_its_result(make: Callable[..., PinfoldWorkspace], pf: Pinfold, work: Path) -> None:
    os.mkfifo("go")
    task = asyncio.create_task(make(work).run("echo one; read line < go; echo $line; kill -9 $$", shell=True))
    await asyncio.to_thread(next, pf.events(kinds="started"))
    await asyncio.to_thread(kill_daemon, pf)
    await asyncio.to_thread(Path("go").write_text, "two\n")
    result = await task
    assert (result.exit_code, result.stdout) == (137, "one\ntwo\n")


async def test_more_output_than_a_model_can_read_is_refused_with_its_beginning(
    make: Callable[..., PinfoldWorkspace], work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integration, "MAX_OUTPUT", 1000)
    with pytest.raises(WorkspaceOutputLimitError, match="pinfold logs") as error:
        await make(work).run(["sh", "-c", "echo beginning; head -c 5000 /dev/zero"])
    assert error.value.stdout.startswith("beginning\n")


async def test_commands_get_no_secrets_unless_asked_and_the_options(
    make: Callable[..., PinfoldWorkspace], pf: Pinfold, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    show = ["sh", "-c", "printf '%s %s' ${SOME_API_KEY-unset} $OWN"]
    assert (await make(work, env={"OWN": "1"}).run(show)).stdout == "unset 1"
    assert (await make(work, inherit_env=True).run(show, env={"OWN": "2"})).stdout == "secret 2"
    sandbox = {"profile": "read-only", "missing": "best_effort"}
    assert (await make(work, options={"sandbox": sandbox, "name": "confined"}).run(["true"])).exit_code == 0
    confined = pf.get("confined").record
    assert confined.sandbox is not None and confined.sandbox.asked.profile == "read-only"
    assert confined.owner == "pydantic-ai"


async def test_a_workspace_of_a_daemon_that_is_reached_by_tcp(home: Path, work: Path) -> None:
    (home / "config.toml").write_text('[tcp]\nlisten = "127.0.0.1:0"\n')
    with Pinfold(home=home) as operator:
        url, token = f"http://{operator.health().tcp}", operator.add_token(owner="remote").token
    workspace = PinfoldWorkspace(work, connection={"url": url, "token": token, "owner": "remote"})
    assert (await workspace.run(["sh", "-c", "pwd; echo $0 >&2; exit 5"])).exit_code == 5
    await Workspace(workspace).write_text("file", "text")
    assert (work / "file").read_text() == "text"
    shutil.rmtree(work)
    with pytest.raises(WorkspaceUnavailableError):
        await workspace.run(["true"])


async def test_what_is_wrong_is_said_before_or_by_the_daemon(home: Path, work: Path) -> None:
    with pytest.raises(ValueError, match="not of 'pinfold'"):
        PinfoldWorkspace(ref=WorkspaceRef(provider="docker", id="x"))
    with pytest.raises(ValueError, match="not both"):
        PinfoldWorkspace(work, ref=WorkspaceRef(provider="pinfold", id="x"))
    workspace = PinfoldWorkspace(work, connection={"home": home, "binary": "/nowhere/pinfold"})
    for timeout in (0, -1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="timeout"):
            await workspace.run(["true"], timeout=timeout)
    with pytest.raises(NotInstalledError):
        await workspace.run(["true"])


def test_the_example_of_the_page_works_as_it_stands(home: Path, work: Path) -> None:
    run_example("pydantic-ai", home, work)
