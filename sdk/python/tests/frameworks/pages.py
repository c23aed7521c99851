"""Runs the example of a page as it stands there, in a program of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGES = Path(__file__).resolve().parents[4] / "docs" / "frameworks"
# Frameworks take long to import on a busy machine.
IMPORT_DEADLINE = 300


def run_example(page: str, home: Path, work: Path) -> None:
    """It must end by itself, say nothing on stderr and print what the page says."""
    text = (PAGES / f"{page}.md").read_text()
    example, expected = (re.findall(rf"^```{kind}\n(.*?)^```", text, re.M | re.S)[0] for kind in ("python", "text"))
    program = work / "example.py"
    program.write_text(example)
    command, env = [sys.executable, str(program)], {**os.environ, "PINFOLD_HOME": str(home)}
    done = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, timeout=IMPORT_DEADLINE)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", expected)
