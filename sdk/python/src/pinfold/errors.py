"""What can go wrong. A command that fails is not an error unless `check=True` asks for one: its record has the outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pinfold.answers import Record
    from pinfold.results import Result


class PinfoldError(Exception):
    """The base of every error of this package."""


class InvalidArgumentError(PinfoldError, ValueError):
    """An argument cannot be sent to the daemon."""


class ApiError(PinfoldError):
    """The daemon refused or failed. Each error code has a subclass; this class itself is raised for codes newer than this package."""

    def __init__(self, code: str, message: str, status: int, id: str | None = None, retry_after: float | None = None):
        super().__init__(message)
        self.code = code
        """The stable code, such as `not_found`."""
        self.message = message
        """What went wrong and what to do, as the daemon says it."""
        self.status = status
        """The HTTP status."""
        self.id = id
        """The process that the error is about."""
        self.retry_after = retry_after
        """Seconds after which the daemon suggests another attempt."""


class UnreachableError(PinfoldError):
    """No daemon can be reached, or the connection broke and the request is not safe to repeat."""


class NotInstalledError(UnreachableError):
    """No daemon is running, and there is no `pinfold` program to start one."""


class DaemonStartError(UnreachableError):
    """No daemon is running, and it could not be started."""


class ProtocolError(PinfoldError):
    """The response is not one of this API: the daemon is another version, or not a pinfold daemon."""


class HttpTimeout(PinfoldError, TimeoutError):
    """The daemon did not answer within `http_timeout`. The request may still be carried out."""


class RecordError(PinfoldError):
    """An error about one process."""

    def __init__(self, message: str, record: Record):
        super().__init__(message)
        self.record = record
        """The record of the process."""


class WaitTimeout(RecordError, TimeoutError):
    """A wait took too long. The process lives on: wait again, or stop it."""


class WaitCancelledError(RecordError):
    """The waits of the owner were released; the process lives on."""


class EndedBeforeError(RecordError):
    """The process ended before the condition of the wait was met."""


class NotReadyError(RecordError):
    """The process was not ready within the `timeout` of its `ready` condition; it runs on."""


class ExitError(RecordError):
    """A command that was run with `check=True` did not exit with code 0."""

    def __init__(self, message: str, result: Result):
        super().__init__(message, result.record)
        self.result = result
        """What `run` would have returned, with the output."""
