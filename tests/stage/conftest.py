"""What stage tests share: commands that are run within the test process set up no more logging than their own."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog


@pytest.fixture(autouse=True)
def logging_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Commands set up logging for a process of their own, onto standard error as it is then: here, pytest's of this one test."""
    before, configure, root = structlog.get_config(), structlog.configure, logging.getLogger()
    handlers, level = list(root.handlers), root.level

    def configure_uncached(**options: Any) -> None:
        configure(**options | {"cache_logger_on_first_use": False})

    monkeypatch.setattr(structlog, "configure", configure_uncached)
    yield
    configure(**before)
    root.handlers[:] = handlers
    root.setLevel(level)
