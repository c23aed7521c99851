"""A sandbox back end for Deep Agents whose commands are processes of pinfold.

It has the interface `SandboxBackendProtocol`. All that it does, file operations included, is done by commands: so it works with a
remote daemon too, and a sandbox confines everything alike.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox

from pinfold import AsyncPinfold, FailedToStartError, NoProgramError, Pinfold, PinfoldError, Process, WaitTimeout
from pinfold.answers import OutputPage, Record
from pinfold.integrations import _commands as commands
from pinfold.integrations._commands import Connection
from pinfold.options import StartOptions

OWNER = "deepagents"
DEFAULT_TIMEOUT = 120
# The beginning and the end of longer output are given; `pinfold logs` has all of it.
MAX_OUTPUT = 512 << 10
# Of one file. A larger one is refused: it would be held in memory.
MAX_FILE = 100 << 20

# Exit codes of the two scripts below, as errors of the interface.
FILE_ERRORS = {2: "file_not_found", 13: "permission_denied", 21: "is_directory", 22: "invalid_path"}
UPLOAD = """
case $1 in /*) ;; *) exit 22 ;; esac
[ -d "$1" ] && exit 21
directory=${1%/*}
mkdir -p -- "${directory:-/}" 2>/dev/null || exit 13
{ : >"$1"; } 2>/dev/null || exit 13
exec cat >"$1"
"""
DOWNLOAD = """
case $1 in /*) ;; *) exit 22 ;; esac
[ -d "$1" ] && exit 21
[ -e "$1" ] || exit 2
[ -r "$1" ] || exit 13
[ -f "$1" ] || exit 22
exec cat -- "$1"
"""


class PinfoldSandbox(BaseSandbox):
    """A directory, and the processes that are started in it.

    - `root_dir`: where commands start; it must exist. Default: the current directory.
    - `connection`: arguments of `Pinfold`. Default: the daemon of this user, as the owner `deepagents`.
    - `timeout`: seconds after which a command is stopped, unless the call has its own; 0 for never.
    - `env`: environment variables of every command, besides PATH, HOME, locale and the like; with `inherit_env`, besides all variables
      of this program, API keys included.
    - `options`: options of every start, such as `{"sandbox": "workspace-write,network=none", "memory_limit": "2G"}`.

    A command that is cancelled or times out is stopped with its whole tree. What a command leaves running when it exits runs on, and is
    listed by `pinfold ps`.
    """

    def __init__(
        self,
        root_dir: str | Path | None = None,
        *,
        connection: Connection | None = None,
        timeout: int = DEFAULT_TIMEOUT,
        env: Mapping[str, str] | None = None,
        inherit_env: bool = False,
        options: StartOptions | None = None,
    ):
        check_timeout(timeout)
        options = options or {}
        self._id = f"pinfold-{uuid.uuid4()}"
        self._connection: Connection = {"owner": OWNER, **(connection or {})}
        self._timeout = timeout
        self._options: StartOptions = {
            **options,
            "cwd": os.path.abspath(Path(root_dir or ".").expanduser()),
            "inherit_env": False,
            "env": {**commands.environment(env, inherit=inherit_env), **(options.get("env") or {})},
        }

    @property
    def id(self) -> str:
        return self._id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a shell command. Stdout and stderr are one stream, in their order."""
        seconds = self._limit(timeout)
        with Pinfold(**self._connection) as pf:
            try:
                process = pf.start(command, **self._options)
            except (NoProgramError, FailedToStartError) as error:
                return not_started(error)
            try:
                record = process.wait(seconds)
            except WaitTimeout:
                process.stop(grace=commands.STOP_GRACE)
                record = None
            except BaseException:
                # Its own error is more important than that of the stop.
                with suppress(PinfoldError):
                    process.stop(grace=commands.STOP_GRACE)
                raise
            return response(record, process.read(budget=MAX_OUTPUT), seconds)

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Like `execute`. If it is cancelled, the command is stopped."""
        seconds = self._limit(timeout)
        async with AsyncPinfold(**self._connection) as pf:
            try:
                process = await commands.start(pf.start(command, **self._options))
            except (NoProgramError, FailedToStartError) as error:
                return not_started(error)
            record = await commands.wait_or_stop(process, seconds)
            return response(record, await process.read(budget=MAX_OUTPUT), seconds)

    def _limit(self, timeout: int | None) -> int | None:
        chosen = self._timeout if timeout is None else timeout
        check_timeout(chosen)
        return chosen or None

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        with Pinfold(**self._connection) as pf:
            return [FileUploadResponse(path=path, error=self._upload(pf, path, data)) for path, data in files]

    def _upload(self, pf: Pinfold, path: str, data: bytes) -> str | None:
        try:
            process = pf.start(["sh", "-c", UPLOAD, "sh", path], **{**self._options, "stdin": "pipe"})
            try:
                process.send(data, eof=True, wait=None)
            except PinfoldError:
                # Its exit code says more: a script that refuses the path does not read its input.
                if process.refresh().outcome is None:
                    process.stop(grace=0)
                    raise
            return finish_file_command(process)
        except PinfoldError as error:
            return str(error)

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        with Pinfold(**self._connection) as pf:
            return [self._download(pf, path) for path in paths]

    def _download(self, pf: Pinfold, path: str) -> FileDownloadResponse:
        options: StartOptions = {**self._options, "streams": "separate", "output_limit": MAX_FILE}
        try:
            process = pf.start(["sh", "-c", DOWNLOAD, "sh", path], **options)
            process.wait()
            content = read_all(process)
            error = finish_file_command(process)
        except PinfoldError as problem:
            return FileDownloadResponse(path=path, error=str(problem))
        if error is None and content is None:
            error = f"the file has more than {MAX_FILE >> 20} MiB: read a part of it by a command"
        return FileDownloadResponse(path=path, content=None if error else content, error=error)


def read_all(process: Process) -> bytes | None:
    """All of its standard output; None if some of it was too much to be kept."""
    data = bytearray()
    for chunk in process.output_bytes(stream="stdout"):
        if chunk.gap:
            return None
        data += chunk.data
    return bytes(data)


def finish_file_command(process: Process) -> str | None:
    """What went wrong, if anything. The process is removed: its record would keep the content of the file, or say nothing of use."""
    record = process.wait(until="finished")
    code = None if record.outcome is None else commands.exit_code(record.outcome)
    text = "" if code == 0 else process.read(stream=None, budget="1k").text.strip()
    process.remove()
    if code == 0:
        return None
    return FILE_ERRORS.get(code or 0) or f"exit code {code}: {text}"


def response(record: Record | None, page: OutputPage, timeout: int | None) -> ExecuteResponse:
    truncated = page.omitted is not None or page.gap is not None
    if record is None:
        text = f"{page.text.rstrip()}\n\nError: the command was stopped after {timeout} seconds. Give it a longer timeout, or run it in the background."
        return ExecuteResponse(output=text.lstrip(), exit_code=commands.TIMED_OUT, truncated=truncated)
    code = None if record.outcome is None else commands.exit_code(record.outcome)
    return ExecuteResponse(output=page.text, exit_code=code, truncated=truncated)


def not_started(error: PinfoldError) -> ExecuteResponse:
    return ExecuteResponse(output=str(error), exit_code=commands.NOT_FOUND)


def check_timeout(timeout: int) -> None:
    if timeout < 0:
        raise ValueError(f"timeout is {timeout}: it must be a number of seconds, or 0 for no limit")
