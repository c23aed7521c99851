"""Where the daemon listens, and how it is started. The rules for paths are those of the `pinfold` program."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from pinfold.errors import DaemonStartError, InvalidArgumentError, NotInstalledError

# `pinfold daemon start` itself gives up after 10 seconds.
START_TIMEOUT = 20
INSTALL = (
    "install pinfold with `cargo install --path crates/cli` in its repository, or set PINFOLD_BINARY to the path of the "
    "program"
)


@dataclass(frozen=True)
class LocalDaemon:
    """A daemon of this machine, by its state directory."""

    home: Path
    binary: str | None
    """The program; None: PINFOLD_BINARY, else `pinfold` beside this Python or in PATH."""

    @property
    def socket(self) -> Path:
        return self.home / "socket"


def find_home(given: str | os.PathLike[str] | None, environment: Mapping[str, str]) -> Path:
    """The state directory: the given one, PINFOLD_HOME, or the default one."""
    if given is not None:
        return Path(os.path.abspath(given))
    home = absolute("PINFOLD_HOME", environment)
    if home:
        return home
    state = absolute("XDG_STATE_HOME", environment)
    user = absolute("HOME", environment)
    if state:
        return state / "pinfold"
    if user:
        return user / ".local/state/pinfold"
    raise InvalidArgumentError("neither PINFOLD_HOME nor HOME is set: set PINFOLD_HOME, or pass `home` or `url`")


def absolute(variable: str, environment: Mapping[str, str]) -> Path | None:
    value = environment.get(variable)
    if not value:
        return None
    if not os.path.isabs(value):
        raise InvalidArgumentError(f"{variable} is `{value}`, which is not an absolute path: set it to an absolute directory")
    return Path(value)


def find_binary(daemon: LocalDaemon, environment: Mapping[str, str]) -> str:
    candidates = [daemon.binary or environment.get("PINFOLD_BINARY")]
    if not candidates[0]:
        beside = shutil.which("pinfold", path=os.path.dirname(sys.executable))
        candidates = [beside, shutil.which("pinfold", path=environment.get("PATH"))]
    for candidate in candidates:
        if candidate and shutil.which(candidate):
            return candidate
    looked = candidates[0] or "no program `pinfold` in PATH"
    raise NotInstalledError(f"no daemon listens at {daemon.socket}, and none can be started: {looked}: {INSTALL}")


def start_daemon(daemon: LocalDaemon) -> None:
    """Returns when a daemon listens, this one or one that another client started."""
    binary = find_binary(daemon, os.environ)
    command = [binary, "--home", str(daemon.home), "daemon", "start"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=START_TIMEOUT
        )
    except subprocess.TimeoutExpired:
        raise DaemonStartError(f"`{' '.join(command)}` did not end within {START_TIMEOUT}s") from None
    except OSError as error:
        raise DaemonStartError(f"cannot run {binary}: {error}") from None
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").strip() or f"exit status {done.returncode}"
        raise DaemonStartError(reason)


async def async_start_daemon(daemon: LocalDaemon) -> None:
    await anyio.to_thread.run_sync(start_daemon, daemon)


sleep = time.sleep
async_sleep = anyio.sleep
