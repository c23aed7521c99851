"""How httpx2 connects to the daemon.

- Certificates are loaded only for an `https` address: that takes tens of milliseconds, and a socket has no use for them.
- The path of a socket is limited to 107 bytes. A longer one is reached through `/proc/self/fd` of its directory, as the daemon does.
- httpcore2 2.16 does not close a Unix socket whose connect fails, which Python reports as a ResourceWarning. Without a daemon that
  happens at every attempt, so the sync transport first tries to connect by itself. The async one closes its sockets.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import cast

import httpcore2
import httpx2

LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
# `sun_path` has 108 bytes, one of them for the terminating NUL.
MAX_SOCKET_PATH = 107
SocketOptions = Iterable[httpcore2.SOCKET_OPTION]


@contextmanager
def short_path(path: str) -> Generator[str, None, None]:
    """A path to the socket that fits into a socket address, for as long as the block lasts."""
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH:
        yield path
        return
    try:
        directory = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
    except OSError as error:
        raise httpcore2.ConnectError(str(error)) from error
    try:
        yield f"/proc/self/fd/{directory}/{os.path.basename(path)}"
    finally:
        os.close(directory)


class CheckingBackend(httpcore2.SyncBackend):
    """Connects to a Unix socket only if something listens there."""

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: SocketOptions | None = None
    ) -> httpcore2.NetworkStream:
        with short_path(path) as short:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.settimeout(timeout)
                try:
                    probe.connect(short)
                except TimeoutError as error:
                    raise httpcore2.ConnectTimeout(str(error)) from error
                except OSError as error:
                    raise httpcore2.ConnectError(str(error)) from error
            return super().connect_unix_socket(short, timeout, socket_options)


class AsyncBackend(httpcore2.AsyncNetworkBackend):
    """Connects to a Unix socket whatever the length of its path."""

    def __init__(self) -> None:
        # httpcore2 hides its base class from type checkers.
        self._inner = cast(httpcore2.AsyncNetworkBackend, httpcore2.AnyIOBackend())

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: SocketOptions | None = None
    ) -> httpcore2.AsyncNetworkStream:
        with short_path(path) as short:
            return await self._inner.connect_unix_socket(short, timeout, socket_options)

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


class Transport(httpx2.HTTPTransport):
    """The sync transport, to a Unix socket or by TCP."""

    def __init__(self, uds: str | None, *, tls: bool):
        super().__init__(verify=tls, uds=uds, limits=LIMITS, trust_env=False)
        if uds is not None:
            self._pool = httpcore2.ConnectionPool(
                uds=uds,
                max_connections=LIMITS.max_connections,
                max_keepalive_connections=LIMITS.max_keepalive_connections,
                keepalive_expiry=LIMITS.keepalive_expiry,
                network_backend=CheckingBackend(),
            )


class AsyncTransport(httpx2.AsyncHTTPTransport):
    """The async transport, to a Unix socket or by TCP."""

    def __init__(self, uds: str | None, *, tls: bool):
        super().__init__(verify=tls, uds=uds, limits=LIMITS, trust_env=False)
        if uds is not None:
            self._pool = httpcore2.AsyncConnectionPool(
                uds=uds,
                max_connections=LIMITS.max_connections,
                max_keepalive_connections=LIMITS.max_keepalive_connections,
                keepalive_expiry=LIMITS.keepalive_expiry,
                network_backend=AsyncBackend(),
            )
