"""A sandbox of the OpenAI Agents SDK whose commands are processes of pinfold.

`PinfoldSandboxSession` is a `BaseSandboxSession`. Its files are those of the SDK's own Unix-local sandbox; its commands and terminals are
processes of pinfold: their whole tree is stopped with the session, exit codes are real, and a sandbox can confine them.
"""

from __future__ import annotations

import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agents.sandbox import Manifest
from agents.sandbox.errors import ExecTimeoutError, ExecTransportError
from agents.sandbox.sandboxes.unix_local import (
    UnixLocalSandboxClient,
    UnixLocalSandboxClientOptions,
    UnixLocalSandboxSession,
    UnixLocalSandboxSessionState,
)
from agents.sandbox.session import SandboxSession, SandboxSessionState
from agents.sandbox.session.pty_types import (
    PTY_PROCESSES_MAX,
    PtyExecUpdate,
    allocate_pty_process_id,
    clamp_pty_yield_time_ms,
    resolve_pty_write_yield_time_ms,
    truncate_text_by_tokens,
)
from agents.sandbox.session.sandbox_client import BaseSandboxClientOptions
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
from agents.sandbox.types import ExecResult, User
from typing_extensions import Unpack, override

from pinfold import AsyncPinfold, AsyncProcess, PinfoldError, WaitTimeout
from pinfold.integrations import _commands as commands
from pinfold.integrations._commands import Connection
from pinfold.options import StartOptions

OWNER = "openai-agents"
# Of each stream of a command. Beyond it the command counts as failed: its result would not be all of it.
MAX_OUTPUT = 32 << 20
# Characters in one update of a terminal. The rest is for the next one.
MAX_UPDATE = 1 << 20
DEFAULT_ROOT = str(Manifest.model_fields["root"].default)


class PinfoldSandboxSessionState(UnixLocalSandboxSessionState):
    """What identifies a session: its directory."""

    type: Literal["pinfold"] = "pinfold"  # pyright: ignore[reportIncompatibleVariableOverride]


class PinfoldSandboxClientOptions(UnixLocalSandboxClientOptions):
    """Options of one session."""

    type: Literal["pinfold"] = "pinfold"  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, exposed_ports: tuple[int, ...] = (), *, type: Literal["pinfold"] = "pinfold") -> None:
        BaseSandboxClientOptions.__init__(self, type=type, exposed_ports=exposed_ports)


@dataclass
class Terminal:
    """A process that the model can come back to, with or without a terminal."""

    process: AsyncProcess
    tty: bool
    cursor: int = 0
    """Up to where its output was given."""


class PinfoldSandboxSession(UnixLocalSandboxSession):
    """A session of `PinfoldSandboxClient`."""

    state: PinfoldSandboxSessionState  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(
        self,
        *,
        state: PinfoldSandboxSessionState,
        connection: Connection,
        options: StartOptions,
        variables: frozenset[str] | None,
    ) -> None:
        """`variables`: which environment variables of this program commands get; None for all."""
        super().__init__(state=state)
        self._host_environment_allowlist = variables
        self._connection = connection
        self._options = options
        # In the order of their last use, the latest at the end.
        self._terminals: dict[int, Terminal] = {}

    def _connect(self) -> AsyncPinfold:
        """For one call: a session may be used in several event loops."""
        return AsyncPinfold(**self._connection)

    async def _start(self, pf: AsyncPinfold, command: list[str], **options: Unpack[StartOptions]) -> AsyncProcess:
        env, cwd = await self._resolved_exec_context()
        own: StartOptions = {**self._options, "cwd": cwd, "inherit_env": False, **options}
        own["env"] = {**env, **(self._options.get("env") or {})}
        return await commands.start(pf.start(command, **own))

    @override
    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        argv = [str(word) for word in command]
        try:
            async with self._connect() as pf:
                process = await self._start(pf, argv, streams="separate")
                record = await commands.wait_or_stop(process, timeout)
                out = await commands.read_stream(process, "stdout", MAX_OUTPUT)
                err = await commands.read_stream(process, "stderr", MAX_OUTPUT)
        except PinfoldError as error:
            raise ExecTransportError(command=argv, cause=error, message=str(error)) from error
        if record is None:
            raise ExecTimeoutError(command=argv, timeout_s=timeout, context={"pinfold_id": process.id})
        if not (out.complete and err.complete):
            problem = f"more than {MAX_OUTPUT >> 20} MiB of output: write it to a file, or see `pinfold logs {process.id}`"
            raise ExecTransportError(command=argv, message=problem, retryable=False)
        code = None if record.outcome is None else commands.exit_code(record.outcome)
        if code is None:
            problem = f"how {process.id} ended was not observed: see `pinfold show {process.id}`"
            raise ExecTransportError(command=argv, message=problem, retryable=False)
        return ExecResult(stdout=out.data, stderr=err.data, exit_code=code)

    @override
    async def pty_exec_start(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: bool | list[str] = True,
        user: str | User | None = None,
        tty: bool = False,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        """Starts a command and waits for its end for `yield_time_s`; it runs on after that. `timeout` has no effect, as in the SDK."""
        argv = self._prepare_exec_command(*command, shell=shell, user=user)
        yield_ms = 10_000 if yield_time_s is None else int(yield_time_s * 1000)
        async with self._connect() as pf:
            await self._make_room(pf)
            options: StartOptions = {"pty": True} if tty else {}
            terminal = Terminal(await self._start(pf, argv, **options), tty)
            number = allocate_pty_process_id(set(self._terminals))
            self._terminals[number] = terminal
            return await self._update(pf, number, clamp_pty_yield_time_ms(yield_ms), max_output_tokens)

    @override
    async def pty_write_stdin(
        self,
        *,
        session_id: int,
        chars: str,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        terminal = self._resolve_pty_session_entry(pty_processes=self._terminals, session_id=session_id)
        if chars and not terminal.tty:
            raise RuntimeError("stdin is not available for this process")
        self._terminals[session_id] = self._terminals.pop(session_id)
        yield_ms = 250 if yield_time_s is None else int(yield_time_s * 1000)
        yield_ms = resolve_pty_write_yield_time_ms(yield_time_ms=yield_ms, input_empty=chars == "")
        async with self._connect() as pf:
            if chars:
                process = await pf.get(terminal.process.id)
                if process.record.outcome is None:
                    await process.send(chars)
            return await self._update(pf, session_id, yield_ms, max_output_tokens)

    async def _update(self, pf: AsyncPinfold, number: int, yield_ms: int, max_tokens: int | None) -> PtyExecUpdate:
        """What the process has written since the last update, when it has exited or the time is over."""
        terminal = self._terminals[number]
        process = await pf.get(terminal.process.id)
        try:
            record = await process.wait(yield_ms / 1000)
        except WaitTimeout as timeout:
            record = timeout.record
        text, is_all = "", True
        # Text, not bytes: a character that is not complete yet is left for the next update.
        async for chunk in process.output(cursor=terminal.cursor):
            text += chunk.text
            terminal.cursor = chunk.next_cursor
            if len(text) > MAX_UPDATE:
                is_all = False
                break
        shown, tokens = truncate_text_by_tokens(text, max_tokens)
        if record.outcome is None or not is_all:
            return PtyExecUpdate(process_id=number, output=shown.encode(), exit_code=None, original_token_count=tokens)
        self._terminals.pop(number, None)
        code = commands.exit_code(record.outcome)
        return PtyExecUpdate(process_id=None, output=shown.encode(), exit_code=code, original_token_count=tokens)

    async def _make_room(self, pf: AsyncPinfold) -> None:
        """Stops the process that was used longest ago, if there are too many."""
        while len(self._terminals) >= PTY_PROCESSES_MAX:
            oldest = self._terminals.pop(next(iter(self._terminals)))
            await commands.stop(await pf.get(oldest.process.id))

    @override
    async def pty_terminate_all(self) -> None:
        terminals, self._terminals = self._terminals, {}
        if not terminals:
            return
        async with self._connect() as pf:
            for terminal in terminals.values():
                await commands.stop(await pf.get(terminal.process.id))


class PinfoldSandboxClient(UnixLocalSandboxClient):
    """Makes sessions.

    - `connection`: arguments of `AsyncPinfold`. Default: the daemon of this user, as the owner `openai-agents`.
    - `inherit_env`: whether commands get all environment variables of this program, API keys included. By default they get PATH, locale
      and the like; HOME is the workspace.
    - `options`: options of every start, such as `{"sandbox": "workspace-write,network=none", "memory_limit": "2G"}`.
    """

    backend_id = "pinfold"

    def __init__(
        self, *, connection: Connection | None = None, inherit_env: bool = False, options: StartOptions | None = None
    ) -> None:
        if inherit_env:
            super().__init__()
        else:
            super().__init__(inherit_host_environment=False, host_environment_allowlist=commands.PASSED_ON)
        self._connection: Connection = {"owner": OWNER, **(connection or {})}
        self._options: StartOptions = options or {}

    @override
    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: UnixLocalSandboxClientOptions | None = None,
    ) -> SandboxSession:
        manifest = self._validate_manifest_for_create(manifest or Manifest())
        owned = manifest.root == DEFAULT_ROOT
        if owned:
            manifest = manifest.model_copy(update={"root": tempfile.mkdtemp(prefix="pinfold-sandbox-")}, deep=True)
        session_id = uuid.uuid4()
        state = PinfoldSandboxSessionState(
            session_id=session_id,
            manifest=manifest,
            snapshot=resolve_snapshot(snapshot, str(session_id)),
            workspace_root_owned=owned,
            exposed_ports=options.exposed_ports if options else (),
        )
        return self._wrap(state)

    @override
    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        if not isinstance(state, PinfoldSandboxSessionState):
            raise TypeError("PinfoldSandboxClient.resume expects a PinfoldSandboxSessionState")
        state.assert_path_grants_rebound()
        return self._wrap(state)

    def _wrap(self, state: PinfoldSandboxSessionState) -> SandboxSession:
        session = PinfoldSandboxSession(
            state=state, connection=self._connection, options=self._options, variables=self._host_environment_allowlist
        )
        return self._wrap_session(session, instrumentation=self._instrumentation)

    @override
    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, PinfoldSandboxSessionState)
