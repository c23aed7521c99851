"""What the back ends share: the environment of commands, exit codes as a shell gives them, and running a command to its end.

The frameworks expect something else than the rest of the package: whoever cancels a call wants its command stopped. So here, and only
here, a cancelled call stops what it started.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import anyio
from typing_extensions import TypedDict

from pinfold import AsyncProcess, Exited, FailedToStart, Outcome, PinfoldError, Signaled, WaitTimeout
from pinfold.answers import Record
from pinfold.options import Span

T = TypeVar("T")

# Without secrets such as API keys: what programs need to find each other and to read text.
PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
# Time between TERM and KILL for a command that was cancelled or took too long.
STOP_GRACE = "2s"
# A shell's exit codes for a program that cannot be run.
NOT_EXECUTABLE = 126
NOT_FOUND = 127
# The exit code of `timeout`.
TIMED_OUT = 124


class Connection(TypedDict, total=False):
    """Which daemon, and as which owner: the arguments of `Pinfold`."""

    owner: str
    parent: str
    home: str | os.PathLike[str]
    binary: str
    start_daemon: bool
    url: str
    token: str
    http_timeout: Span


def environment(own: Mapping[str, str] | None, *, inherit: bool) -> dict[str, str]:
    """The environment of every command: all of this program's, or what is in PASSED_ON; and `own` on top."""
    names = os.environ if inherit else PASSED_ON
    return {name: os.environ[name] for name in names if name in os.environ} | dict(own or {})


def exit_code(outcome: Outcome) -> int | None:
    """The code that a shell would give; None if the end was not observed."""
    match outcome:
        case Exited(code):
            return code
        case Signaled(number):
            return 128 + number
        case FailedToStart():
            return NOT_EXECUTABLE
        case _:
            return None


@dataclass(frozen=True)
class Output:
    """What a stream has had so far."""

    data: bytes
    complete: bool
    """False: `data` is the beginning, and the rest is over the limit or no longer stored."""


async def finish(work: Coroutine[Any, Any, T]) -> T:
    """The result of the work, which is never cancelled. A cancellation that comes meanwhile is raised after it, instead."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            with anyio.CancelScope(shield=True):
                await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.exception()  # has been seen
        raise cancelled
    return task.result()


async def start(launch: Coroutine[Any, Any, AsyncProcess]) -> AsyncProcess:
    """The process that this call starts. If the call is cancelled meanwhile, the process is stopped before that is raised."""
    started: list[AsyncProcess] = []

    async def keep() -> None:
        started.append(await launch)

    try:
        await finish(keep())
    except asyncio.CancelledError:
        for process in started:
            await try_stop(process)
        raise
    return started[0]


async def stop(process: AsyncProcess) -> None:
    await finish(process.stop(grace=STOP_GRACE))


async def try_stop(process: AsyncProcess) -> None:
    """For a call that fails anyway: its own error is more important than that of the stop."""
    with suppress(PinfoldError):
        await stop(process)


async def wait_or_stop(process: AsyncProcess, timeout: Span | None) -> Record | None:
    """The record once the command has exited; None if it took longer than `timeout`, and was stopped."""
    try:
        return await process.wait(timeout)
    except WaitTimeout:
        await stop(process)
        return None
    except BaseException:
        await try_stop(process)
        raise


async def read_stream(process: AsyncProcess, stream: Literal["stdout", "stderr"] | None, limit: int) -> Output:
    """What the stream has had so far, up to `limit` bytes."""
    data = bytearray()
    async for chunk in process.output_bytes(stream=stream):
        if chunk.gap:
            return Output(bytes(data), complete=False)
        data += chunk.data
        if len(data) > limit:
            return Output(bytes(data[:limit]), complete=False)
    return Output(bytes(data), complete=True)
