"""Sends requests to one daemon and repeats them where that is safe; starts the daemon if none runs."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TypeVar

import httpx2

from pinfold._calls import Call
from pinfold._daemon import LocalDaemon, async_sleep, async_start_daemon
from pinfold._retry import ConnectionFailed, Reached, Retries, Step
from pinfold._transport import AsyncTransport
from pinfold.errors import ApiError, HttpTimeout, InvalidArgumentError, ProtocolError

T = TypeVar("T")
Headers = list[tuple[bytes, bytes]]

# Errors of a connect that mean that no daemon listens.
NO_DAEMON = {errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR}


class AsyncConnection:
    """The connections to one daemon, by its socket or its address. Every request that waits has one of its own."""

    def __init__(self, daemon: LocalDaemon | str, http_timeout: float, *, start_daemon: bool):
        self.local = daemon if isinstance(daemon, LocalDaemon) else None
        self.address = str(daemon.socket) if isinstance(daemon, LocalDaemon) else daemon
        self._base = "http://localhost" if self.local else self.address.rstrip("/")
        self._http_timeout = http_timeout
        self._start_daemon = start_daemon and self.local is not None
        # Only a plain address does without certificates: whatever else it is, it is checked.
        tls = not self._base.lower().startswith("http://")
        transport = AsyncTransport(self.address if self.local else None, tls=tls)
        try:
            # With the address, so that a malformed one is noticed here and not at the first request.
            self._client = httpx2.AsyncClient(transport=transport, base_url=self._base, trust_env=False)
        except httpx2.InvalidURL as error:
            raise InvalidArgumentError(f"{daemon!r} is not an address: {error}") from None

    async def call(self, make: Callable[[], Call[T]], headers: Headers) -> T:
        """The answer to a request. `make` is called for every attempt, so that a wait goes on for what is left of it."""
        call = make()
        retries = Retries(self.address, call.repeatable, self._start_daemon, self._http_timeout)
        while True:
            try:
                response = await self._send(call, headers)
                return call.parse(response.status_code, response.headers, response.content)
            except ConnectionFailed as failure:
                step = retries.after_failure(failure)
            except ApiError as error:
                step = retries.after_refusal(error)
            if step is Step.START_DAEMON and self.local:
                await async_start_daemon(self.local)
            else:
                await async_sleep(retries.pause)
            call = make()

    async def _send(self, call: Call[T], headers: Headers) -> httpx2.Response:
        timeout = httpx2.Timeout(self._http_timeout, read=self._http_timeout + call.wait, pool=None)
        try:
            return await self._client.request(
                call.method, self._base + call.target, content=call.body, headers=headers, timeout=timeout
            )
        except httpx2.ConnectError as error:
            reached = Reached.NO_DAEMON if errno_of(error) in NO_DAEMON else Reached.NOT_SENT
            raise ConnectionFailed(reached, str(error)) from error
        except httpx2.ConnectTimeout:
            raise ConnectionFailed(Reached.NOT_SENT, "the connection was not accepted in time") from None
        except httpx2.TimeoutException:
            raise HttpTimeout(
                f"the daemon at {self.address} did not answer {call.method} {call.target} within {self._http_timeout:g}s: "
                "pass a longer `http_timeout`, or run `pinfold doctor`"
            ) from None
        except httpx2.LocalProtocolError as error:
            raise InvalidArgumentError(f"the request cannot be sent: {error}") from None
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            raise InvalidArgumentError(f"{self.address!r} is not an address of a daemon: {error}") from None
        except httpx2.DecodingError as error:
            raise ProtocolError(f"the answer to {call.method} {call.target} cannot be decoded: {error}") from None
        except httpx2.TransportError as error:
            raise ConnectionFailed(Reached.MAYBE_SENT, str(error) or type(error).__name__) from error

    async def aclose(self) -> None:
        await self._client.aclose()


def errno_of(error: BaseException) -> int | None:
    """The number of the operating system's error that caused this one."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno is not None:
            return cause.errno
        cause = cause.__cause__ or cause.__context__
    return None


class AsyncCaller:
    """Who asks: a connection, and the headers of the owner and the token."""

    def __init__(self, connection: AsyncConnection, headers: Headers):
        self.connection = connection
        self.headers = headers

    async def call(self, call: Call[T]) -> T:
        return await self.connection.call(lambda: call, self.headers)

    async def call_again(self, make: Callable[[], Call[T]]) -> T:
        """Like `call`, for a request that is written anew for each attempt."""
        return await self.connection.call(make, self.headers)
