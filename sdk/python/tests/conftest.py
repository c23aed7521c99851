"""A daemon and a home for each test; what a test started is stopped, and nothing may be left open."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import DEADLINE, temporary_home

from pinfold import AsyncPinfold, Pinfold


def pytest_configure() -> None:
    if not os.environ.get("PINFOLD_BINARY"):
        pytest.exit("set PINFOLD_BINARY to the path of a pinfold program", returncode=2)


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
    with temporary_home() as home:
        yield home


@pytest.fixture(scope="class")
def class_home() -> Iterator[Path]:
    """One daemon for all tests of a class."""
    with temporary_home() as home:
        yield home


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
