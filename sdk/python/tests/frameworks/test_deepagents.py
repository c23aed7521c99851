"""The public conformance suite of Deep Agents for sandboxes, and what it does not cover, with the real daemon."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from deepagents.backends.protocol import SandboxBackendProtocol
from langchain_tests.integration_tests import SandboxIntegrationTests
from pages import run_example
from trees import DETACHING, is_gone

from pinfold import BadCwdError, NotInstalledError, Pinfold
from pinfold.integrations.deepagents import PinfoldSandbox

GLOB = "langchain-tests 1.1.9 expects relative paths and directories; deepagents 0.7.32 gives absolute paths of files only"
WRITE = "langchain-tests 1.1.9 expects a refusal; deepagents 0.7.32 overwrites an existing file"
# Tests that contradict the interface that is installed. What they test is code of deepagents itself, above `execute`.
OUTDATED = {
    "test_glob": GLOB,
    "test_glob_basic_pattern": GLOB,
    "test_glob_hidden_files_explicitly": GLOB,
    "test_glob_with_character_class": GLOB,
    "test_glob_with_directories": GLOB,
    "test_glob_with_question_mark": GLOB,
    "test_write_existing_file_fails": WRITE,
}


class TestConformance(SandboxIntegrationTests):
    root: str

    @pytest.fixture(scope="class", autouse=True)
    def make_root(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        TestConformance.root = str(tmp_path_factory.mktemp("root"))

    @pytest.fixture(scope="class")
    def sandbox(self, class_home: Path) -> SandboxBackendProtocol:
        return PinfoldSandbox(self.root, connection={"home": class_home})

    @property
    def sandbox_root_dir(self) -> str:
        return self.root


@pytest.fixture
def sandbox(home: Path, work: Path) -> PinfoldSandbox:
    return PinfoldSandbox(work, connection={"home": home})


async def test_a_timeout_and_a_cancelled_call_stop_the_whole_tree(sandbox: PinfoldSandbox, work: Path) -> None:
    for answer in (sandbox.execute(DETACHING, timeout=1), await sandbox.aexecute(DETACHING, timeout=1)):
        assert answer.exit_code == 124
        assert "stopped after 1 seconds" in answer.output
        assert is_gone(work)
    (work / "ready").unlink()
    task = asyncio.create_task(sandbox.aexecute(DETACHING))
    while not (work / "ready").exists():
        await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert is_gone(work)


async def test_outcomes_output_and_environment(sandbox: PinfoldSandbox, home: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sandbox.execute("kill -9 $$").exit_code == 137
    answer = sandbox.execute("echo one; echo two >&2; echo three")
    assert (answer.output, answer.exit_code, answer.truncated) == ("one\ntwo\nthree\n", 0, False)
    much = await sandbox.aexecute("echo first; head -c 2000000 /dev/zero | tr '\\0' x; echo last", timeout=0)
    assert much.truncated and len(much.output) <= 512 << 10
    assert much.output.startswith("first") and much.output.endswith("last\n")
    monkeypatch.setenv("SOME_API_KEY", "secret")
    for inherit, expected in ((False, "unset"), (True, "secret")):
        other = PinfoldSandbox(work, connection={"home": home}, inherit_env=inherit)
        assert other.execute("printf ${SOME_API_KEY-unset}").output == expected


def test_files_leave_no_copy_and_errors_are_those_of_the_interface(sandbox: PinfoldSandbox, pf: Pinfold, work: Path) -> None:
    data = bytes(range(256)) * 8000
    path = str(work / "new" / "file")
    assert [answer.error for answer in sandbox.upload_files([(path, data), (str(work), b""), ("relative", b"x")])] == [
        None, "is_directory", "invalid_path",
    ]  # fmt: skip
    found, missing, directory = sandbox.download_files([path, "/nowhere/file", str(work)])
    assert (found.content, found.error) == (data, None)
    assert (missing.error, directory.error) == ("file_not_found", "is_directory")
    assert [record.command for record in pf.list()] == []


def test_what_is_wrong_is_said(home: Path, work: Path) -> None:
    with pytest.raises(ValueError, match="timeout"):
        PinfoldSandbox(work, timeout=-1)
    with pytest.raises(BadCwdError):
        PinfoldSandbox("/nowhere", connection={"home": home}).execute("true")
    unreachable = PinfoldSandbox(work, connection={"home": home / "none", "binary": "/nowhere/pinfold"})
    with pytest.raises(NotInstalledError):
        unreachable.execute("true")
    assert "install pinfold" in str(unreachable.download_files(["/etc/hostname"])[0].error)


def test_the_example_of_the_page_works_as_it_stands(home: Path, work: Path) -> None:
    run_example("deepagents", home, work)
