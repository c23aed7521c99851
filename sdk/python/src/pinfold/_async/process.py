"""A handle of one process."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Literal

from pinfold import _calls as calls
from pinfold import answers
from pinfold._async.connection import AsyncCaller
from pinfold._async.pages import AsyncByteOutput, AsyncOutput
from pinfold._deadline import Deadline
from pinfold.errors import EndedBeforeError, NotReadyError, WaitCancelledError, WaitTimeout
from pinfold.options import Size, Span

Until = Literal["exit", "closed", "finished", "output", "match", "port", "quiet", "ready", "input"]
# The longest wait of one request for input; the daemon's maximum is a minute.
INPUT_SLICE = 30.0


class AsyncProcess:
    """A process. Dropping the handle, or the program that has it, does not affect the process."""

    def __init__(self, caller: AsyncCaller, record: answers.Record):
        self._caller = caller
        self.record = record
        """What was last heard of it; `refresh` asks again."""
        self.hints: list[str] = record.hints if isinstance(record, answers.Started) else []
        """Things worth knowing about its start."""

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def ports(self) -> dict[str, int]:
        """Its leased ports by environment variable."""
        return self.record.ports

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.record.status}: {self.record.command}>"

    async def refresh(self) -> answers.Record:
        """The record as it is now."""
        return self._seen(await self._caller.call(calls.show(self.id)))

    async def wait(
        self, timeout: Span | None = None, *, until: Literal["exit", "closed", "finished"] = "exit"
    ) -> answers.Record:
        """Waits until it has exited, its output is closed, or its tree is empty and the record final.

        Raises WaitTimeout after `timeout`. Neither that nor cancelling the wait affects the process.
        """
        return (await self.wait_until(until, timeout)).record

    async def wait_ready(self, timeout: Span | None = None) -> answers.Record:
        """Waits until its `ready` condition is met; without one, until its tree listens on its first leased port.

        Raises WaitTimeout, NotReadyError or EndedBeforeError.
        """
        if self.record.ready is None and self.ports:
            return (await self.wait_until("port", timeout, port=next(iter(self.ports.values())))).record
        return (await self.wait_until("ready", timeout)).record

    async def wait_until(
        self,
        until: Until,
        timeout: Span | None = None,
        *,
        cursor: int | None = None,
        pattern: str | None = None,
        exclude: str | None = None,
        port: int | None = None,
        quiet: Span | None = None,
    ) -> answers.WaitAnswer:
        """Waits for any condition of the API; the answer has the matching line or the port."""
        if until == "output" and cursor is None:
            # "New output" means new since this call, also if the request has to be repeated.
            cursor = (await self.refresh()).output.bytes
        query: dict[str, Any] = {"until": until, "cursor": cursor, "pattern": pattern, "exclude": exclude}
        query |= {"port": port, "quiet": quiet}
        deadline = Deadline(timeout)
        while True:
            answer = await self._caller.call_again(lambda: calls.wait(self.id, query, deadline.next_wait()))
            self._seen(answer.record)
            if answer.reason != "timeout":
                break
            if deadline.has_passed():
                raise WaitTimeout(f"{self.id} was waited for ({until}) for {timeout}; it lives on", answer.record)
        if answer.reason == "cancelled":
            raise WaitCancelledError(f"the waits of {answer.record.owner} were released; {self.id} lives on", answer.record)
        if answer.reason == "ended_before":
            raise EndedBeforeError(f"{self.id} ended before the condition ({until}) was met", answer.record)
        if answer.reason == "not_ready":
            ready = answer.record.ready
            raise NotReadyError(f"{self.id} is not ready: {ready.text if ready else None}", answer.record)
        return answer

    def output(
        self,
        *,
        follow: bool = False,
        cursor: int | None = None,
        tail: str | None = None,
        stream: Literal["stdout", "stderr"] | None = None,
    ) -> AsyncOutput:
        """The output in pieces, from a cursor or the last `tail` (`4k`, `20 lines`) on.

        `follow` goes on until the output is complete, also over a crash of the daemon. To stop earlier, leave the loop.
        """
        return AsyncOutput(self._caller, self.id, cursor, tail, stream, follow=follow)

    def output_bytes(
        self, *, follow: bool = False, cursor: int = 0, stream: Literal["stdout", "stderr"] | None = None
    ) -> AsyncByteOutput:
        """Like `output`, as the bytes that the process wrote."""
        return AsyncByteOutput(self._caller, self.id, cursor, stream, follow=follow)

    async def read(
        self,
        *,
        cursor: int | None = None,
        tail: str | None = None,
        budget: Size | None = None,
        max_bytes: Size | None = None,
        grep: str | None = None,
        context: int | None = None,
        stream: Literal["stdout", "stderr"] | None = None,
        strip_ansi: bool | None = None,
        times: bool | None = None,
    ) -> answers.OutputPage:
        """One page of the output so far: within a budget, or the lines that match `grep`."""
        query: dict[str, Any] = {"cursor": cursor, "tail": tail, "budget": budget, "max_bytes": max_bytes}
        query |= {"grep": grep, "context": context, "stream": stream, "strip_ansi": strip_ansi, "times": times}
        return await self._caller.call(calls.output(self.id, query))

    async def send(
        self, data: str | bytes = b"", *, keys: Sequence[str] = (), eof: bool = False, wait: Span | None = "30s"
    ) -> answers.InputAnswer:
        """Sends input, once: text or bytes, then keys by name, then the end of input.

        Raises WaitTimeout if not all of it was accepted within `wait`; what was accepted stays sent.
        """
        rest = data.encode(errors="surrogateescape") if isinstance(data, str) else data
        deadline = Deadline(wait)
        while True:
            piece, rest = rest[: calls.MAX_INPUT], rest[calls.MAX_INPUT :]
            answer = await self._send_piece(piece, () if rest else keys, eof and not rest, deadline)
            if not rest:
                return answer

    async def _send_piece(self, piece: bytes, keys: Sequence[str], eof: bool, deadline: Deadline) -> answers.InputAnswer:
        input_id = str(uuid.uuid4())
        while True:
            answer = await self._caller.call_again(
                lambda: calls.send_input(self.id, piece, keys, eof, input_id, deadline.next_wait(INPUT_SLICE))
            )
            self._seen(answer.record)
            if answer.complete:
                return answer
            if deadline.has_passed():
                problem = f"{self.id} does not read its input: {answer.accepted} of {len(piece)} bytes were accepted"
                raise WaitTimeout(f"{problem}: wait longer, or see whether it hangs", answer.record)

    async def stop(
        self, *, signal: str | None = None, grace: Span | None = None, by: str | None = None
    ) -> answers.StopAnswer:
        """Stops the whole tree and returns when it is empty; `survivors` could not be killed.

        A `grace` given at the start that is longer than `http_timeout` is not known here: pass it again.
        """
        answer = await self._caller.call(calls.stop(self.id, signal, grace, by))
        self._seen(answer.record)
        return answer

    async def signal(self, signal: str | int, *, by: str | None = None) -> answers.SignalAnswer:
        """Sends a signal to every process of the tree."""
        answer = await self._caller.call(calls.signal(self.id, signal, by))
        self._seen(answer.record)
        return answer

    async def pause(self) -> answers.SignalAnswer:
        """Freezes the tree."""
        answer = await self._caller.call(calls.pause(self.id))
        self._seen(answer.record)
        return answer

    async def resume(self) -> answers.SignalAnswer:
        """Lets a paused tree run on."""
        answer = await self._caller.call(calls.resume(self.id))
        self._seen(answer.record)
        return answer

    async def restart(
        self, *, signal: str | None = None, grace: Span | None = None, by: str | None = None
    ) -> AsyncProcess:
        """Ends this life of a process with a restart policy, and starts the next one, which is returned."""
        return AsyncProcess(self._caller, await self._caller.call(calls.restart(self.id, signal, grace, by)))

    async def screen(self) -> answers.Screen:
        """What its terminal shows."""
        return await self._caller.call(calls.screen(self.id))

    async def resize(self, rows: int, cols: int) -> answers.Screen:
        """Sets the size of its terminal."""
        return await self._caller.call(calls.resize(self.id, rows, cols))

    async def samples(self, *, after: str | None = None) -> answers.Samples:
        """CPU and memory of its tree, sampled once per second while somebody asks."""
        return await self._caller.call(calls.samples(self.id, after))

    async def handover(self, purpose: str, *, to: str | None = None) -> answers.Record:
        """Gives it to another owner; default: the parent of its owner."""
        return self._seen(await self._caller.call(calls.handover(self.id, to, purpose)))

    async def remove(self) -> answers.Removed:
        """Removes it and its output; it must have ended."""
        return await self._caller.call(calls.remove(self.id))

    def _seen(self, record: answers.Record) -> answers.Record:
        self.record = record
        return record
