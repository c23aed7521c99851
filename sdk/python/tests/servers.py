"""Servers that are not a good daemon: one that plays back given bytes, and a proxy that loses an answer."""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from typing_extensions import Self


class SocketServer:
    """Listens at `socket` in a home of its own; every connection is handled by `answer`, one after the other."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="pf-"))
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.home / "socket"))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)

    def answer(self, connection: socket.socket) -> None:
        raise NotImplementedError

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                try:
                    self.answer(connection)
                except ConnectionError:
                    pass

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Wakes the thread out of `accept`.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        shutil.rmtree(self.home)


def read_message(connection: socket.socket) -> bytes:
    """One HTTP message with its body, or what came before the connection was closed."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return data
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
    while len(body) < int(lengths[0] if lengths else 0):
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def json_response(body: str, status: str = "200 OK", headers: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body.encode())}\r\nconnection: close\r\n{headers}\r\n"
    return head.encode() + body.encode()


class Playback(SocketServer):
    """Answers each request with the next of these, and closes the connection; after the last one, with the last one."""

    def __init__(self, *responses: bytes | Callable[[socket.socket], None]):
        super().__init__()
        self._responses = list(responses)
        self.requests: list[bytes] = []

    def answer(self, connection: socket.socket) -> None:
        request = read_message(connection)
        if not request:
            return  # the client only looked whether something listens
        self.requests.append(request)
        response = self._responses.pop(0) if len(self._responses) > 1 else self._responses[0]
        if callable(response):
            response(connection)
        else:
            connection.sendall(response)


class LosingProxy(SocketServer):
    """Passes each request on to a daemon, and loses the answer to the first one with this text in its target."""

    def __init__(self, daemon: Path, path: str = ""):
        super().__init__()
        self._daemon = daemon
        self._path = path.encode()
        self.lost = 0

    def answer(self, connection: socket.socket) -> None:
        request = read_message(connection)
        if not request:
            return
        with socket.socket(socket.AF_UNIX) as upstream:
            upstream.connect(str(self._daemon))
            upstream.sendall(request)
            response = read_message(upstream)
        if not self.lost and self._path in request.split(b" ")[1]:
            self.lost += 1
        else:
            connection.sendall(response)
