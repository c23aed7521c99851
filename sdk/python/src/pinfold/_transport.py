"""How httpx2 connects to the daemon.

Certificates are loaded only for an `https` address: that takes tens of milliseconds, and a socket has no use for them.

httpcore2 2.16 does not close a Unix socket whose connect fails, which Python reports as a ResourceWarning. Without a daemon
that happens at every attempt, so the sync transport first tries to connect by itself. The async one closes its sockets.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable

import httpcore2
import httpx2

LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=20)


class CheckingBackend(httpcore2.SyncBackend):
    """Connects to a Unix socket only if something listens there."""

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None
    ) -> httpcore2.NetworkStream:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(timeout)
            try:
                probe.connect(path)
            except TimeoutError as error:
                raise httpcore2.ConnectTimeout(str(error)) from error
            except OSError as error:
                raise httpcore2.ConnectError(str(error)) from error
        return super().connect_unix_socket(path, timeout, socket_options)


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
