"""The Python client of pinfold, the process manager for AI agents. `Pinfold` and `AsyncPinfold` are where to begin."""

from pinfold import answers, error_codes, errors, options
from pinfold._async.client import AsyncOwner, AsyncPinfold
from pinfold._async.pages import AsyncEvent
from pinfold._async.process import AsyncProcess
from pinfold._sync.client import Owner, Pinfold
from pinfold._sync.pages import Event
from pinfold._sync.process import Process
from pinfold.answers import Cause, Exited, FailedToStart, Lost, Outcome, Record, Signaled
from pinfold.error_codes import *
from pinfold.errors import (
    ApiError,
    DaemonStartError,
    EndedBeforeError,
    ExitError,
    HttpTimeout,
    InvalidArgumentError,
    NotInstalledError,
    NotReadyError,
    PinfoldError,
    ProtocolError,
    UnreachableError,
    WaitCancelledError,
    WaitTimeout,
)
from pinfold.options import StartOptions
from pinfold.results import ByteChunk, Chunk, Result

__all__ = [
    "ApiError",
    "AsyncEvent",
    "AsyncOwner",
    "AsyncPinfold",
    "AsyncProcess",
    "ByteChunk",
    "Cause",
    "Chunk",
    "DaemonStartError",
    "EndedBeforeError",
    "Event",
    "ExitError",
    "Exited",
    "FailedToStart",
    "HttpTimeout",
    "InvalidArgumentError",
    "Lost",
    "NotInstalledError",
    "NotReadyError",
    "Outcome",
    "Owner",
    "Pinfold",
    "PinfoldError",
    "Process",
    "ProtocolError",
    "Record",
    "Result",
    "Signaled",
    "StartOptions",
    "UnreachableError",
    "WaitCancelledError",
    "WaitTimeout",
    "answers",
    "error_codes",
    "errors",
    "options",
]
__all__ += error_codes.__all__
