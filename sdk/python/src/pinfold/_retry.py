"""Decides what to do about a request that failed: give up, try again, or start the daemon and try again."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pinfold.errors import ApiError, UnreachableError

FIRST_PAUSE = 0.01
LAST_PAUSE = 1.0
# The daemon did nothing and says so; the request can be sent again whatever it is.
NOTHING_DONE = {"recovering", "shutting_down"}


class Reached(Enum):
    """How far a request got before its connection failed."""

    NO_DAEMON = "nothing listens there"
    NOT_SENT = "no connection"
    MAYBE_SENT = "the connection broke"


class ConnectionFailed(Exception):
    """A request got no complete response."""

    def __init__(self, reached: Reached, reason: str):
        super().__init__(reason)
        self.reached = reached
        self.reason = reason


class Step(Enum):
    """What to do next, after the pause."""

    START_DAEMON = "start the daemon"
    REPEAT = "repeat the request"


@dataclass
class Retries:
    """The attempts of one request. Gives up once the pauses add up to `patience` seconds."""

    address: str
    repeatable: bool
    can_start_daemon: bool
    patience: float
    pause: float = 0.0
    paused: float = 0.0
    was_connected: bool = False

    def after_failure(self, failure: ConnectionFailed) -> Step:
        """The next step; raises UnreachableError if there is none."""
        problem = f"cannot reach the daemon at {self.address}: {failure.reason}"
        if failure.reached is Reached.MAYBE_SENT:
            self.was_connected = True
            if not self.repeatable:
                raise UnreachableError(f"{problem}: the request may have been carried out: look before you repeat it")
        elif not self.can_start_daemon and not self.was_connected:
            raise UnreachableError(f"{problem}: check the address, and that a daemon listens there")
        elif failure.reached is Reached.NOT_SENT and self.can_start_daemon:
            raise UnreachableError(f"{problem}: run `pinfold doctor`")
        self._count_pause(UnreachableError(f"{problem}: gave up after several attempts: run `pinfold doctor`"))
        start = failure.reached is Reached.NO_DAEMON and self.can_start_daemon
        return Step.START_DAEMON if start else Step.REPEAT

    def after_refusal(self, error: ApiError) -> Step:
        """The next step; raises the error if a repetition is not safe or does not help."""
        if error.code not in NOTHING_DONE:
            raise error
        self._count_pause(error)
        return Step.REPEAT

    def _count_pause(self, error: Exception) -> None:
        if self.paused >= self.patience:
            raise error
        self.pause = min(max(self.pause * 2, FIRST_PAUSE), LAST_PAUSE)
        self.paused += self.pause
