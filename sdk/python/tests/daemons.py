"""Daemons of tests: a home for each, killing one, and waiting for its end."""

from __future__ import annotations

import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from pinfold import Pinfold

# How long a test waits for something that must happen.
DEADLINE = 60


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


@contextmanager
def temporary_home() -> Generator[Path, None, None]:
    """A state directory with a short path, since the path of a socket is limited. Its daemon is stopped at the end."""
    home = Path(tempfile.mkdtemp(prefix="pf-"))
    yield home
    if (home / "socket").exists():
        with Pinfold(home=home) as operator, ends(operator.health().pid):
            assert operator.shutdown(stop_processes=True).survivors == []
    remove(home)


def remove(home: Path) -> None:
    """Removes a directory in which idle keepers, which end after their daemon, still remove files of their own."""
    end = time.monotonic() + DEADLINE
    while home.exists():
        try:
            shutil.rmtree(home)
        except OSError:
            assert time.monotonic() < end, f"{home} cannot be removed"
            time.sleep(0.01)
