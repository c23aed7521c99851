"""The client: starting, finding and waiting for processes; events; owners; the daemon itself."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Literal

from typing_extensions import Self, Unpack

from pinfold import _calls as calls
from pinfold import answers
from pinfold._async.connection import AsyncCaller, AsyncConnection, Headers
from pinfold._async.pages import AsyncEvents, AsyncHits, AsyncRecords
from pinfold._async.process import AsyncProcess
from pinfold._daemon import LocalDaemon, find_home
from pinfold._deadline import MAX_SLICE, MAX_WAIT, Deadline
from pinfold._span import seconds
from pinfold.errors import InvalidArgumentError, WaitCancelledError, WaitTimeout
from pinfold.options import Lifetime, OnWaitTimeout, Port, Size, Span, StartOptions
from pinfold.results import Result

Labels = Mapping[str, str]


class AsyncOperations:
    """What a client can do, whatever it acts as."""

    def __init__(self, caller: AsyncCaller, acts_as: str | None, lifetime: Lifetime | None):
        self._caller = caller
        self._acts_as = acts_as
        self._lifetime: Lifetime | None = lifetime

    @property
    def is_local(self) -> bool:
        """Whether the daemon is the one of this machine, reached by its socket."""
        return self._caller.connection.local is not None

    async def run(
        self,
        command: str | Sequence[str],
        *,
        wait: Span | None = None,
        budget: Size | None = None,
        check: bool = False,
        on_wait_timeout: OnWaitTimeout | None = None,
        ports: Mapping[str, Port] | Sequence[str] | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[StartOptions],
    ) -> Result:
        """Runs a shell command, or a program with its arguments, and waits until it has exited (with `ready`: is ready).

        `wait` is how long; then the result has no outcome and the command runs on. A failed command is a result too, unless
        `check` asks for ExitError. `budget` is the maximum of text in the result.
        """
        most = self._longest_wait(wait, on_wait_timeout)
        deadline = Deadline(wait)
        body = self._start_body(command, ports, idempotency_key, options)
        body |= {"budget": budget, "on_wait_timeout": on_wait_timeout}
        started = await self._caller.call_again(lambda: calls.start(body, wait=deadline.next_wait(most)))
        record: answers.Record = started
        page = started.output_page
        if started.waited is None or (started.waited.reason == "timeout" and not deadline.has_passed()):
            page, until = None, "ready" if "ready" in options else "exit"
            record = await self._wait_on(started.id, until, deadline)
        if page is None:
            page = await self._caller.call(calls.output(started.id, {"budget": budget}))
        result = Result(record, page, started.hints)
        if check:
            result.check()
        return result

    def _longest_wait(self, wait: Span | None, on_wait_timeout: OnWaitTimeout | None) -> float:
        """The maximum wait of one request: if the daemon is to stop the command after the wait, that request has all of it."""
        if on_wait_timeout != "stop":
            return MAX_SLICE
        if wait is None or seconds(wait) > MAX_WAIT:
            raise InvalidArgumentError('on_wait_timeout="stop" needs a `wait` of at most 1h: use `time_limit` for longer')
        return MAX_WAIT

    async def _wait_on(self, id: str, until: str, deadline: Deadline) -> answers.Record:
        while True:
            answer = await self._caller.call_again(lambda: calls.wait(id, {"until": until}, deadline.next_wait()))
            if answer.reason != "timeout" or deadline.has_passed():
                return answer.record

    async def start(
        self,
        command: str | Sequence[str],
        *,
        ports: Mapping[str, Port] | Sequence[str] | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[StartOptions],
    ) -> AsyncProcess:
        """Starts a shell command, or a program with its arguments, and returns at once.

        `ports` are environment variables that each get a free port of their own, or a mapping to fixed ones.
        """
        body = self._start_body(command, ports, idempotency_key, options)
        return AsyncProcess(self._caller, await self._caller.call(calls.start(body)))

    def _start_body(
        self,
        command: str | Sequence[str],
        ports: Mapping[str, Port] | Sequence[str] | None,
        key: str | None,
        options: StartOptions,
    ) -> dict[str, Any]:
        key = str(uuid.uuid4()) if key is None else key
        return calls.start_body(command, options, local=self.is_local, key=key, ports=ports, lifetime=self._lifetime)

    async def get(self, id: str) -> AsyncProcess:
        """A process by its id, an unambiguous prefix of it, or its name."""
        return AsyncProcess(self._caller, await self._caller.call(calls.show(id)))

    def list(
        self,
        *,
        status: str | None = None,
        name: str | None = None,
        owner: str | None = None,
        labels: Labels | None = None,
        created_after: Span | None = None,
        created_before: Span | None = None,
        finished_after: Span | None = None,
        finished_before: Span | None = None,
        tree: bool | None = None,
        usage: bool | None = None,
        limit: int | None = None,
    ) -> AsyncRecords:
        """The records of processes: live ones first, then newest first. Times are RFC 3339, or a duration for that long ago."""
        query: dict[str, Any] = {"status": status, "name": name, "owner": owner, "label": labels, "tree": tree, "usage": usage}
        query |= {"created_after": created_after, "created_before": created_before}
        query |= {"finished_after": finished_after, "finished_before": finished_before}
        return AsyncRecords(self._caller, query, limit)

    def search(
        self,
        pattern: str,
        *,
        literal: bool | None = None,
        ignore_case: bool | None = None,
        process: str | None = None,
        status: str | None = None,
        name: str | None = None,
        owner: str | None = None,
        labels: Labels | None = None,
        finished_after: Span | None = None,
        finished_before: Span | None = None,
    ) -> AsyncHits:
        """Lines of output that match, over all processes that these filters leave; newest process first."""
        query: dict[str, Any] = {"pattern": pattern, "literal": literal, "ignore_case": ignore_case, "process": process}
        query |= {"status": status, "name": name, "owner": owner, "label": labels}
        query |= {"finished_after": finished_after, "finished_before": finished_before}
        return AsyncHits(self._caller, query)

    async def wait_any(
        self,
        processes: Sequence[AsyncProcess],
        timeout: Span | None = None,
        *,
        until: Literal["exit", "closed", "finished"] = "exit",
    ) -> AsyncProcess:
        """The first of these that has exited. Raises WaitTimeout; the processes live on."""
        return (await self._wait_many(processes, "any", until, timeout))[0]

    async def wait_all(
        self,
        processes: Sequence[AsyncProcess],
        timeout: Span | None = None,
        *,
        until: Literal["exit", "closed", "finished"] = "exit",
    ) -> Sequence[AsyncProcess]:
        """Waits until all of these have exited. Raises WaitTimeout; the processes live on."""
        return await self._wait_many(processes, "all", until, timeout)

    async def _wait_many(
        self, processes: Sequence[AsyncProcess], mode: str, until: str, timeout: Span | None
    ) -> Sequence[AsyncProcess]:
        if not processes:
            raise InvalidArgumentError("no processes to wait for: pass at least one")
        handles = {process.id: process for process in processes}
        deadline = Deadline(timeout)
        while True:
            answer = await self._caller.call_again(
                lambda: calls.wait_many([*handles], mode, until, deadline.next_wait())
            )
            for record in (*answer.done, *answer.pending):
                handles[record.id].record = record
            if answer.reason == "cancelled":
                raise WaitCancelledError("the waits of this owner were released; the processes live on", answer.pending[0])
            if answer.reason != "timeout":
                return [handles[record.id] for record in answer.done]
            if deadline.has_passed():
                raise WaitTimeout(f"{len(answer.pending)} processes still run after {timeout}", answer.pending[0])

    def events(
        self,
        *,
        consumer: str | None = None,
        after: int | Literal["latest"] | None = None,
        kinds: str | None = None,
        process: str | None = None,
        owner: str | None = None,
        limit: int | None = None,
        lease: Span | None = None,
        reader: str | None = None,
        wait: Span | None = None,
    ) -> AsyncEvents:
        """Events as they happen. The loop ends when none came for `wait`; without `wait`, never.

        With a `consumer` the daemon keeps the cursor: an event that is not acknowledged within its `lease` comes again. `kinds` are
        comma-separated, or `announce`.
        """
        query = {"kinds": kinds, "process": process, "owner": owner, "limit": limit, "lease": lease, "reader": reader}
        return AsyncEvents(self._caller, query, after, consumer, wait)

    async def consumers(self) -> Sequence[answers.Consumer]:
        """The named readers of events."""
        return (await self._caller.call(calls.consumers())).consumers

    async def forget_consumer(self, name: str) -> answers.Consumer:
        """Removes a named reader of events and its cursor."""
        return await self._caller.call(calls.forget_consumer(name))

    def owner(self, name: str, *, parent: str | None = None, grace: Span | None = None) -> AsyncOwner:
        """Acts as an owner, below the one that this client acts as. Leaving the `with` block ends that owner.

        What is started there is stopped at the end, unless it has another `lifetime`. `grace`: the owner also counts as ended this
        long after its last request.
        """
        parent = self._acts_as if parent is None else parent
        token = [header for header in self._caller.headers if header[0] == b"authorization"]
        headers = token + owner_headers(name, parent, grace)
        return AsyncOwner(AsyncCaller(self._caller.connection, headers), name, "owner")

    async def owners(self) -> Sequence[answers.Owner]:
        """The owners in view."""
        return (await self._caller.call(calls.owners())).owners

    async def end_owner(self, name: str, *, grace: Span | None = None) -> answers.EndAnswer:
        """Ends an owner and its descendants: each of their processes is stopped, kept or handed over, as its `lifetime` says."""
        return await self._caller.call(calls.end_owner(name, grace))

    async def release_owner(self, name: str) -> answers.ReleaseAnswer:
        """Ends the open waits of an owner; its processes live on."""
        return await self._caller.call(calls.release_owner(name))

    async def inbox(self, *, owner: str | None = None, limit: int | None = None) -> answers.Inbox:
        """What needs a person."""
        return await self._caller.call(calls.inbox(owner, limit))

    async def inbox_seen(self, through: int) -> answers.SeenAnswer:
        """Marks the failures up to this event as seen."""
        return await self._caller.call(calls.inbox_seen(through))

    async def health(self) -> answers.Health:
        """The state of the daemon."""
        return await self._caller.call(calls.health())

    async def doctor(self) -> answers.DoctorAnswer:
        """What this machine supports, and how to fix what is missing."""
        return await self._caller.call(calls.doctor())

    async def gc(self, *, older_than: Span | None = None, dry_run: bool = False) -> answers.GcAnswer:
        """Removes what ended long ago."""
        return await self._caller.call(calls.gc(older_than, dry_run))

    async def add_token(
        self, *, owner: str | None = None, label: str | None = None, expires: Span | None = None
    ) -> answers.TokenAnswer:
        """Makes a token for TCP; its text is shown only here."""
        return await self._caller.call(calls.add_token(owner, label, expires))

    async def tokens(self) -> Sequence[answers.Token]:
        """The tokens, without their text."""
        return (await self._caller.call(calls.tokens())).tokens

    async def revoke_token(self, id: str) -> answers.Token:
        """Revokes a token."""
        return await self._caller.call(calls.revoke_token(id))

    async def shutdown(self, *, stop_processes: bool = False) -> answers.ShutdownAnswer:
        """Ends the daemon. Processes live on, unless they are to be stopped too."""
        return await self._caller.call(calls.shutdown(stop_processes))


class AsyncPinfold(AsyncOperations):
    """A client of the daemon of this user, which is started if it does not run, or of the one at `url`.

    `http_timeout` is how long the daemon may take to answer, in addition to what a request asks it to wait. It bounds no process.
    """

    def __init__(
        self,
        *,
        owner: str | None = None,
        parent: str | None = None,
        home: str | os.PathLike[str] | None = None,
        binary: str | None = None,
        start_daemon: bool = True,
        url: str | None = None,
        token: str | None = None,
        http_timeout: Span = "30s",
    ):
        """`home` is the state directory, `binary` the `pinfold` program; by default both are found as the program finds them.

        With `owner` it sees and changes only what belongs to that owner and its descendants. `url` and `token` are for TCP.
        """
        if url is not None and home is not None:
            raise InvalidArgumentError("give `home` or `url`, not both")
        daemon = url if url is not None else LocalDaemon(find_home(home, os.environ), binary)
        connection = AsyncConnection(daemon, seconds(http_timeout), start_daemon=start_daemon)
        headers = [] if token is None else [(b"authorization", header_value("token", f"Bearer {token}"))]
        if owner is not None:
            headers += owner_headers(owner, parent, None)
        super().__init__(AsyncCaller(connection, headers), owner, None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections. What was started lives on."""
        await self._caller.connection.aclose()


class AsyncOwner(AsyncOperations):
    """An owner that ends with its `with` block. It uses the connections of the client that made it."""

    def __init__(self, caller: AsyncCaller, name: str, lifetime: Lifetime):
        super().__init__(caller, name, lifetime)
        self.name = name
        self.ended: answers.EndAnswer | None = None
        """What ending it did; None before."""

    async def end(self, *, grace: Span | None = None) -> answers.EndAnswer:
        """Ends it and its descendants."""
        self.ended = await self.end_owner(self.name, grace=grace)
        return self.ended

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.end()


def owner_headers(owner: str, parent: str | None, grace: Span | None) -> Headers:
    headers = [(b"pinfold-owner", header_value("owner", owner))]
    if parent is not None:
        headers.append((b"pinfold-parent", header_value("parent", parent)))
    if grace is not None:
        headers.append((b"pinfold-owner-grace", f"{seconds(grace):f}s".encode()))
    return headers


def header_value(what: str, text: str) -> bytes:
    if not isinstance(text, str) or not text or not text.isprintable():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgumentError(f"{what}: {text!r} is not a line of printable text")
    return text.encode()
