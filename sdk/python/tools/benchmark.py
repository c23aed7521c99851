#!/usr/bin/env python3
"""How much longer `pf.run("true")` takes than the same request by a bare httpx2 call. The two take turns in one run.

Needs PINFOLD_BINARY. Starts a daemon in a temporary home and stops it at the end.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable

import httpx2

from pinfold import Pinfold
from pinfold._calls import start_body


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    home = tempfile.mkdtemp(prefix="pf-")
    with Pinfold(home=home, binary=os.environ["PINFOLD_BINARY"]) as pf:
        with httpx2.Client(transport=httpx2.HTTPTransport(uds=f"{home}/socket"), timeout=60, trust_env=False) as http:
            bare = bare_call(http)
            pf.run("true")
            bare()
            times: dict[str, list[float]] = {"run": [], "bare": []}
            for _ in range(rounds):
                times["run"].append(timed(lambda: pf.run("true")))
                times["bare"].append(timed(bare))
        pf.shutdown(stop_processes=True)
    shutil.rmtree(home, ignore_errors=True)
    run, other = (statistics.median(times[name]) * 1000 for name in ("run", "bare"))
    print(f'pf.run("true") {run:.3f} ms, bare httpx2 {other:.3f} ms, ratio {run / other:.3f} (medians of {rounds})')


def bare_call(http: httpx2.Client) -> Callable[[], None]:
    """The request of `pf.run("true")`, written and read with nothing but JSON."""

    def call() -> None:
        body = start_body("true", {}, local=True, key=str(uuid.uuid4()), ports=None, lifetime=None)
        body = {name: value for name, value in body.items() if value is not None}
        response = http.post("http://localhost/v1/processes", content=json.dumps({**body, "wait": 300}).encode())
        assert response.json()["outcome"] == {"kind": "exited", "code": 0}

    return call


def timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
