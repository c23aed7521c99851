"""A workspace for Pydantic AI whose commands are processes of pinfold.

It has the protocols `WorkspaceBackend` and `SupportsCommands`. File operations are left to the framework, which does them by commands:
so they work with a remote daemon too, and a sandbox confines them like everything else.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic_ai.messages import WorkspaceRef
from pydantic_ai.workspaces import (
    CommandResult,
    SupportsCommands,
    WorkspaceBackend,
    WorkspaceCommand,
    WorkspaceError,
    WorkspaceOutputLimitError,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)

from pinfold import AsyncPinfold, AsyncProcess, BadCwdError, FailedToStartError, NoProgramError
from pinfold.integrations import _commands as commands
from pinfold.integrations._commands import Connection
from pinfold.options import StartOptions

PROVIDER = "pinfold"
OWNER = "pydantic-ai"
# A command with more output is refused: the framework wants all of it, and a model cannot read that much.
MAX_OUTPUT = 10 << 20
# How much of such output the error has, of each stream.
MAX_EXCERPT = 64 << 10


class PinfoldWorkspace(WorkspaceBackend, SupportsCommands):
    """A directory, and the processes that are started in it.

    - `working_dir`: where commands start. None: a new directory of the daemon's machine, made at the first operation and never removed.
    - `ref`: attaches to the workspace of an earlier `PinfoldWorkspace`, instead of a `working_dir`.
    - `connection`: arguments of `AsyncPinfold`. Default: the daemon of this user, as the owner `pydantic-ai`.
    - `env`: environment variables of every command, besides PATH, HOME, locale and the like; with `inherit_env`, besides all variables
      of this program, API keys included.
    - `options`: options of every start, such as `{"sandbox": "workspace-write,network=none", "memory_limit": "2G"}`.

    A command that is cancelled or times out is stopped with its whole tree. What a command leaves running when it exits runs on, and is
    listed by `pinfold ps`.
    """

    def __init__(
        self,
        working_dir: str | Path | None = None,
        *,
        ref: WorkspaceRef | None = None,
        connection: Connection | None = None,
        env: Mapping[str, str] | None = None,
        inherit_env: bool = False,
        options: StartOptions | None = None,
    ):
        if ref is not None and working_dir is not None:
            raise ValueError("give `working_dir` or `ref`, not both")
        if ref is not None and ref.provider != PROVIDER:
            raise ValueError(f"the ref is of {ref.provider!r}, not of {PROVIDER!r}")
        if working_dir is not None:
            ref = WorkspaceRef(provider=PROVIDER, id=os.path.abspath(Path(working_dir).expanduser()))
        self._ref = ref
        self._connection: Connection = {"owner": OWNER, **(connection or {})}
        self._env = commands.environment(env, inherit=inherit_env)
        self._options: StartOptions = options or {}
        self._working_dir: str | None = None
        self._creating: asyncio.Task[str] | None = None

    @property
    def ref(self) -> WorkspaceRef | None:
        """The directory; None until a new one is made."""
        return self._ref

    def _connect(self) -> AsyncPinfold:
        """For one call: a workspace has no end at which connections could be closed, and may be used in several event loops."""
        return AsyncPinfold(**self._connection)

    async def working_dir(self) -> str:
        async with self._connect() as pf:
            return await self._find_working_dir(pf)

    async def _find_working_dir(self, pf: AsyncPinfold) -> str:
        if self._ref is None:
            await self._create()
        assert self._ref is not None
        if self._working_dir is None:
            self._working_dir = await self._resolve(pf, self._ref.id)
        elif not await self._exists(pf, self._working_dir):
            raise unavailable(self._working_dir)
        return self._working_dir

    async def _create(self) -> None:
        """Makes the directory once, however many ask for it at the same time and whether or not they are cancelled."""
        # After a failure, or the end of the event loop in which it ran, the next caller tries again.
        if self._creating is None or self._creating.done():
            self._creating = asyncio.ensure_future(self._make_dir())
        await asyncio.shield(self._creating)

    async def _make_dir(self) -> str:
        async with self._connect() as pf:
            # Without the options: a sandbox could put it into a directory that is removed with the command.
            made = await pf.run(["mktemp", "-d", "-t", "pinfold-workspace-XXXXXX"], cwd="/", check=True)
        path = made.text.strip()
        self._ref = WorkspaceRef(provider=PROVIDER, id=path)
        return path

    async def _resolve(self, pf: AsyncPinfold, path: str) -> str:
        resolved = await pf.run(["sh", "-c", 'cd -P -- "$1" && pwd -P', "sh", path], cwd="/", streams="separate")
        if not resolved.ok:
            raise unavailable(path)
        return (await commands.read_stream(await pf.get(resolved.id), "stdout", MAX_OUTPUT)).data.decode().removesuffix("\n")

    async def _exists(self, pf: AsyncPinfold, path: str) -> bool:
        if pf.is_local:
            return await asyncio.to_thread(os.path.isdir, path)
        return (await pf.run(["test", "-d", path], cwd="/")).ok

    async def run(
        self,
        command: WorkspaceCommand,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        check_form(command, shell=shell)
        if timeout is not None and not 0 < timeout < float("inf"):
            raise ValueError("timeout must be a positive finite number or None")
        async with self._connect() as pf:
            working_dir = await self._find_working_dir(pf)
            options: StartOptions = {**self._options, "cwd": working_dir, "streams": "separate", "inherit_env": False}
            options["env"] = {**self._env, **(self._options.get("env") or {}), **(env or {})}
            try:
                process = await commands.start(pf.start(command, **options))
            except NoProgramError as error:
                return CommandResult(exit_code=commands.NOT_FOUND, stdout="", stderr=f"{error}\n")
            except FailedToStartError as error:
                return CommandResult(exit_code=commands.NOT_EXECUTABLE, stdout="", stderr=f"{error}\n")
            except BadCwdError:
                raise unavailable(working_dir) from None
            result = await collect(process, timeout)
            # A command can outlive its directory. That is no ordinary exit.
            if not await self._exists(pf, working_dir):
                raise unavailable(working_dir)
            return result


async def collect(process: AsyncProcess, timeout: float | None) -> CommandResult:
    """Waits for the exit of the command, or stops it after `timeout`, and reads all of its output."""
    record = await commands.wait_or_stop(process, timeout)
    out = await commands.read_stream(process, "stdout", MAX_OUTPUT)
    err = await commands.read_stream(process, "stderr", MAX_OUTPUT - len(out.data))
    stdout, stderr = (output.data.decode(errors="replace") for output in (out, err))
    if record is None:
        raise WorkspaceTimeoutError(f"the command was stopped after {timeout:g}s", stdout=stdout, stderr=stderr)
    if not (out.complete and err.complete):
        raise WorkspaceOutputLimitError(
            f"the command has more than {MAX_OUTPUT >> 20} MiB of output, or it was not all kept: write it to a file and read "
            f"a part of that, or see `pinfold logs {process.id}`",
            limit=MAX_OUTPUT,
            stdout=stdout[:MAX_EXCERPT],
            stderr=stderr[:MAX_EXCERPT],
        )
    code = None if record.outcome is None else commands.exit_code(record.outcome)
    if code is None:
        raise WorkspaceError(f"how {process.id} ended was not observed: see `pinfold show {process.id}`")
    return CommandResult(exit_code=code, stdout=stdout, stderr=stderr)


def check_form(command: WorkspaceCommand, *, shell: bool) -> None:
    if shell and not isinstance(command, str):
        raise TypeError("a shell command is one string: pass it as text, or leave `shell` out")
    if not shell and (isinstance(command, str) or not is_argv(command)):
        raise TypeError("a command is a sequence of words: pass one, or text with `shell=True`")


def is_argv(command: Sequence[object]) -> bool:
    return all(isinstance(word, str) for word in command)


def unavailable(path: str) -> WorkspaceUnavailableError:
    return WorkspaceUnavailableError(f"the workspace directory {path} does not exist")
