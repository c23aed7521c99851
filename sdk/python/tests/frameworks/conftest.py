"""Runs the async tests of every framework in asyncio; expects the failures that a module explains in OUTDATED."""

from __future__ import annotations

import inspect

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            item.add_marker("anyio")
        reason = getattr(getattr(item, "module", None), "OUTDATED", {}).get(item.name.partition("[")[0])
        if reason:
            # Strict: a test that passes again leaves the list.
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
