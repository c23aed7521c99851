"""A daemon and a home for each test; what a test started is stopped, and nothing may be left open."""

from __future__ import annotations

import os
import select
import shutil
import signal
import tempfile
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pinfold import AsyncPinfold, Pinfold

# How long a test waits for something that must happen.
DEADLINE = 60


def pytest_configure() -> None:
    if not os.environ.get("PINFOLD_BINARY"):
        pytest.exit("set PINFOLD_BINARY to the path of a pinfold program", returncode=2)


@contextmanager
def ends(pid: int) -> Generator[None, None, None]:
    """Waits at the end of the block until this process has ended."""
    pidfd = os.pidfd_open(pid)
    try:
        yield
        assert select.select([pidfd], [], [], DEADLINE)[0], f"process {pid} did not end"
    finally:
        os.close(pidfd)


def kill_daemon(pf: Pinfold) -> int:
    """Kills the daemon with -9; its pid."""
    pid = pf.health().pid
    with ends(pid):
        os.kill(pid, signal.SIGKILL)
    return pid


def open_sockets() -> set[str]:
    links: set[str] = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            links.add(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            pass
    return {link for link in links if link.startswith("socket:")}


@pytest.fixture(autouse=True)
def nothing_left_open() -> Iterator[None]:
    sockets, threads = open_sockets(), set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - threads:
        thread.join(DEADLINE)
        assert not thread.is_alive(), f"{thread} was left running"
    assert open_sockets() <= sockets


@pytest.fixture
def home(nothing_left_open: None) -> Iterator[Path]:
    """A state directory with a short path, since the path of a socket is limited. Its daemon is stopped at the end."""
    home = Path(tempfile.mkdtemp(prefix="pf-"))
    yield home
    if (home / "socket").exists():
        with Pinfold(home=home) as operator, ends(operator.health().pid):
            assert operator.shutdown(stop_processes=True).survivors == []
    shutil.rmtree(home)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory, the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def pf(home: Path, work: Path) -> Iterator[Pinfold]:
    with Pinfold(home=home) as client:
        yield client


@pytest.fixture
def async_pf(home: Path, work: Path) -> AsyncPinfold:
    """To be entered by the test, inside its event loop."""
    return AsyncPinfold(home=home)
