"""Options of all tests."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# No test is timed, and one that passed on a commit passes on it again; at a desk each run looks somewhere new.
settings.register_profile("desk", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "desk")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-goldens", action="store_true", help="write what comes out as what is expected")


@pytest.fixture
def update_goldens(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-goldens"))
