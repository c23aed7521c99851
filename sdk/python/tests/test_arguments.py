"""Arguments that cannot be sent, and durations."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

import pinfold
from pinfold import InvalidArgumentError, Pinfold
from pinfold._daemon import find_home
from pinfold._span import seconds


@pytest.mark.parametrize("command", [5, None, b"ls", ["ls", 5], {"a": 1}])
def test_a_command_is_text_or_words(tmp_path: Path, command: Any) -> None:
    with Pinfold(home=tmp_path, start_daemon=False) as pf, pytest.raises(InvalidArgumentError, match="is not a command"):
        pf.run(command)


def test_values_that_are_not_json_are_refused_before_they_are_sent(tmp_path: Path) -> None:
    with Pinfold(home=tmp_path, start_daemon=False) as pf:
        for value in (object(), {1, 2}, float("nan"), "\udcff"):
            with pytest.raises(InvalidArgumentError):
                pf.start("true", labels={"a": cast(Any, value)})
        with pytest.raises(InvalidArgumentError):
            pf.get(cast(Any, 7))
        with pytest.raises(InvalidArgumentError):
            next(pf.search("\udcff"))
        with pytest.raises(InvalidArgumentError):
            pf.wait_any([])
        with pytest.raises(InvalidArgumentError):
            pf.run("true", on_wait_timeout="stop")
    for owner in ("a\nb", "", cast(Any, 7)):
        with pytest.raises(InvalidArgumentError):
            Pinfold(home=tmp_path, owner=owner)
    with pytest.raises(InvalidArgumentError):
        Pinfold(home=tmp_path, url="http://127.0.0.1:1")


def test_what_only_the_daemon_can_refuse_is_an_error_with_its_advice(pf: Pinfold) -> None:
    with pytest.raises(pinfold.InvalidRequestError, match="30s"):
        pf.start("true", time_limit="soon")
    with pytest.raises(pinfold.BadCwdError):
        pf.start("true", cwd="/nowhere")
    with pytest.raises(pinfold.NoProgramError):
        pf.start(["/nowhere/program"])
    with pytest.raises(pinfold.ApiError):
        pf.start("true", **cast(Any, {"no_such_option": 1}))
    with pytest.raises(pinfold.BadPatternError):
        next(pf.search("("))
    with pytest.raises(pinfold.NoStdinError):
        pf.start("true").send("text")


@pytest.mark.parametrize(
    ("span", "expected"),
    [(0, 0), (1.5, 1.5), ("30", 30), ("250ms", 0.25), ("1h30m", 5400), (" 7 s", 7), ("2d", 172800), (".5s", 0.5)],
)
def test_durations_are_read_as_the_daemon_reads_them(span: float | str, expected: float) -> None:
    assert seconds(span) == pytest.approx(expected)


def test_a_timedelta_is_a_duration() -> None:
    assert seconds(timedelta(minutes=2)) == 120


@pytest.mark.parametrize("span", ["", "-1", "-5s", "abc", "5x", "1h30", "s", "1..5s", "NaN", "inf", -1, True, None, [1]])
def test_what_is_not_a_duration_is_refused_with_an_example(span: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="30s"):
        seconds(span)


def test_the_home_is_found_as_the_program_finds_it() -> None:
    assert find_home(None, {"PINFOLD_HOME": "/a", "HOME": "/u"}) == Path("/a")
    assert find_home(None, {"PINFOLD_HOME": "", "XDG_STATE_HOME": "/s", "HOME": "/u"}) == Path("/s/pinfold")
    assert find_home(None, {"HOME": "/u"}) == Path("/u/.local/state/pinfold")
    assert find_home("/given", {"PINFOLD_HOME": "/a"}) == Path("/given")
    with pytest.raises(InvalidArgumentError, match="not an absolute path"):
        find_home(None, {"PINFOLD_HOME": "a"})
    with pytest.raises(InvalidArgumentError, match="PINFOLD_HOME"):
        find_home(None, {})
