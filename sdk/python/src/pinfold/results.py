"""What the handwritten methods return, beside the answers of the daemon."""

from __future__ import annotations

from dataclasses import dataclass, field

from pinfold.answers import Cause, Exited, FailedToStart, Lost, Outcome, OutputPage, Range, Record, Signaled
from pinfold.errors import ExitError, WaitTimeout


@dataclass(frozen=True)
class Chunk:
    """A piece of output."""

    cursor: int
    """Where the piece starts, in bytes since the start of the process."""
    next_cursor: int
    """Where it ends: to continue later, read from here."""
    text: str
    """The text. Bytes that are not UTF-8 are replaced."""
    gap: Range | None = None
    """Output right before this piece that is no longer stored."""


@dataclass(frozen=True)
class ByteChunk:
    """A piece of output, as the process wrote it."""

    cursor: int
    """Where the piece starts, in bytes since the start of the process."""
    next_cursor: int
    """Where it ends: to continue later, read from here."""
    data: bytes
    gap: Range | None = None
    """Output right before this piece that is no longer stored."""


@dataclass(frozen=True)
class Result:
    """What a command that was run has done so far."""

    record: Record
    page: OutputPage = field(repr=False)
    """The output, cut to the budget, with exact counts."""
    hints: list[str] = field(default_factory=list[str])
    """Things worth knowing about the start."""

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def outcome(self) -> Outcome | None:
        """How it ended; None while it runs."""
        return self.record.outcome

    @property
    def cause(self) -> Cause | None:
        """Why it ended."""
        return self.record.cause

    @property
    def text(self) -> str:
        """The output, cut to the budget."""
        return self.page.text

    @property
    def omitted(self) -> Range | None:
        """The range that was left out of the text to stay within the budget."""
        return self.page.omitted

    @property
    def ok(self) -> bool:
        """Whether it exited with code 0."""
        return self.outcome == Exited(0)

    def check(self) -> None:
        """Raises WaitTimeout if it still runs, ExitError unless it exited with code 0."""
        if self.outcome is None:
            raise WaitTimeout(f"{self.id} still runs: wait for it again, or stop it", self.record)
        if not self.ok:
            raise ExitError(f"`{self.record.command}` {describe(self.outcome)}", self)


def describe(outcome: Outcome) -> str:
    """The outcome in a few words."""
    match outcome:
        case Exited(code):
            return f"exited with code {code}"
        case Signaled(_, name):
            return f"was ended by the signal {name}"
        case FailedToStart(step, error):
            return f"could not be started: {step}: {error}"
        case Lost(evidence):
            return f"was lost: {evidence}"
