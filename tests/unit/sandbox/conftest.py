"""One sandbox for each level that holds on this machine, opened on first use and shared by the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from roll_core.sandbox import Level, Sandbox, SandboxUnavailableError


@pytest.fixture(scope="session")
def open_level() -> Iterator[Callable[[Level], Sandbox]]:
    opened: dict[Level, Sandbox | SandboxUnavailableError] = {}

    def open_level(level: Level) -> Sandbox:
        if level not in opened:
            try:
                opened[level] = Sandbox(level)
            except SandboxUnavailableError as error:
                opened[level] = error
        sandbox = opened[level]
        if isinstance(sandbox, SandboxUnavailableError):
            pytest.skip(str(sandbox))
        return sandbox

    yield open_level
    for sandbox in opened.values():
        if isinstance(sandbox, Sandbox):
            sandbox.close()


@pytest.fixture(params=["ns", "landlock", "seccomp"])
def sandbox(request: pytest.FixtureRequest, open_level: Callable[[Level], Sandbox]) -> Sandbox:
    return open_level(request.param)


@pytest.fixture
def ns(open_level: Callable[[Level], Sandbox]) -> Sandbox:
    return open_level("ns")
