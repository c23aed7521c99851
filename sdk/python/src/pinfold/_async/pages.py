"""Iterators over answers that come in pages.

Between two pages nothing is open: an iterator that is dropped leaves nothing behind, and one whose read was cancelled or failed
continues where it was.
"""

from __future__ import annotations

import abc
from collections import deque
from typing import Any, Generic, Literal, TypeVar

from pinfold import _calls as calls
from pinfold import answers
from pinfold._async.connection import AsyncCaller
from pinfold._deadline import Deadline
from pinfold.answers import Hit, Record
from pinfold.errors import InvalidArgumentError
from pinfold.options import Span
from pinfold.results import ByteChunk, Chunk

T = TypeVar("T")

# How long one request of a follow waits for output or events.
POLL = 60.0
# How much output one request of a follow may bring.
CHUNK = 256 << 10


class AsyncPages(abc.ABC, Generic[T]):
    """An iterator that reads a page when it has nothing left."""

    def __init__(self, caller: AsyncCaller):
        self._caller = caller
        self._ready: deque[T] = deque()
        self._ended = False

    def __aiter__(self) -> AsyncPages[T]:
        return self

    async def __anext__(self) -> T:
        while not self._ready:
            if self._ended:
                raise StopAsyncIteration
            await self._read()
        return self._ready.popleft()

    @abc.abstractmethod
    async def _read(self) -> None:
        """Reads a page: adds to `_ready`, or sets `_ended`."""


class AsyncRecords(AsyncPages[Record]):
    """The records of a list."""

    def __init__(self, caller: AsyncCaller, query: dict[str, Any], limit: int | None):
        super().__init__(caller)
        self._query = query
        self._left = limit

    async def _read(self) -> None:
        page = await self._caller.call(calls.list_processes({**self._query, "limit": min(self._left or 500, 500)}))
        taken = page.processes[: self._left]
        self._ready.extend(taken)
        self._query["page"] = page.next
        if self._left is not None:
            self._left -= len(taken)
        self._ended = page.next is None or self._left == 0


class AsyncHits(AsyncPages[Hit]):
    """The lines that a search finds."""

    def __init__(self, caller: AsyncCaller, query: dict[str, Any]):
        super().__init__(caller)
        self._query = query

    async def _read(self) -> None:
        page = await self._caller.call(calls.search(self._query))
        self._ready.extend(page.hits)
        self._query["page"] = page.next
        self._ended = page.next is None


class AsyncOutput(AsyncPages[Chunk]):
    """The output of a process in pieces, from a cursor on; follows it to its end, or stops at what there is now."""

    def __init__(
        self, caller: AsyncCaller, id: str, cursor: int | None, tail: str | None, stream: str | None, *, follow: bool
    ):
        super().__init__(caller)
        self._id = id
        self._start = {"cursor": cursor, "tail": tail}
        self._options = {"stream": stream, "max_bytes": CHUNK}
        self._wait = POLL if follow else None

    async def _read(self) -> None:
        query = {**self._options, **self._start}
        page = await self._caller.call(calls.output(self._id, query, self._wait))
        if page.text or page.gap:
            self._ready.append(Chunk(page.cursor, page.next_cursor, page.text, page.gap))
        moved = page.next_cursor != self._start["cursor"] and page.next_cursor < page.end
        no_more = page.closed or page.status in ("finished", "lost") or self._wait is None
        self._ended = no_more and not moved
        self._start = {"cursor": page.next_cursor}


class AsyncByteOutput(AsyncPages[ByteChunk]):
    """Like AsyncOutput, as the bytes that the process wrote."""

    def __init__(self, caller: AsyncCaller, id: str, cursor: int, stream: str | None, *, follow: bool):
        super().__init__(caller)
        self._id = id
        self._cursor = cursor
        self._options = {"stream": stream, "max_bytes": CHUNK}
        self._wait = POLL if follow else None

    async def _read(self) -> None:
        query = {**self._options, "cursor": self._cursor}
        page = await self._caller.call(calls.raw_output(self._id, query, self._wait))
        if page.data or page.gap:
            self._ready.append(ByteChunk(page.cursor, page.next_cursor, page.data, page.gap))
        moved = page.next_cursor != self._cursor and page.next_cursor < page.end
        no_more = page.closed or page.status in ("finished", "lost") or self._wait is None
        self._ended = no_more and not moved
        self._cursor = page.next_cursor


class AsyncEvent(answers.Event):
    """An event, and whether events before it are missing."""

    truncated: bool = False
    """Whether events right before this one were deleted before they could be read."""
    _ack: tuple[AsyncCaller, str] | None = None

    @classmethod
    def received(cls, event: answers.Event, truncated: bool, ack: tuple[AsyncCaller, str] | None) -> AsyncEvent:
        own = cls(**event.__dict__)
        own.__dict__.update(truncated=truncated, _ack=ack)
        return own

    async def ack(self) -> answers.Consumer:
        """Says that this event and all before it were processed: the consumer will not get them again."""
        if self._ack is None:
            raise InvalidArgumentError("this event was read without a consumer: pass `consumer` to `events`")
        caller, consumer = self._ack
        return await caller.call(calls.ack(consumer, self.seq))


class AsyncEvents(AsyncPages[AsyncEvent]):
    """Events as they happen."""

    def __init__(
        self,
        caller: AsyncCaller,
        query: dict[str, Any],
        after: int | Literal["latest"] | None,
        consumer: str | None,
        wait: Span | None,
    ):
        super().__init__(caller)
        self._query = {**query, "consumer": consumer, "after": after}
        self._ack = None if consumer is None else (caller, consumer)
        self._wait = wait
        self._deadline: Deadline | None = None

    async def _read(self) -> None:
        deadline = self._deadline = self._deadline or Deadline(self._wait)
        page = await self._caller.call_again(lambda: calls.events(self._query, deadline.next_wait(POLL)))
        # A consumer has a cursor of its own once it exists.
        self._query["after"] = page.next if self._ack is None else None
        for index, event in enumerate(page.events):
            self._ready.append(AsyncEvent.received(event, page.truncated and index == 0, self._ack))
        if self._ready:
            self._deadline = None
        elif deadline.has_passed():
            self._ended = True
