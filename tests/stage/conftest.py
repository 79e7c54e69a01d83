"""What stage tests share: commands that are run within the test process set up no more logging than their own; and the transport of
production, over plain connections and over TLS.
"""

import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import structlog

from forwarder.observability.logging import configure_logging
from forwarder.pms.http.connections import ConnectionPool
from tests.support.network.transports import SCHEMES, Way


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


@pytest.fixture
def nothing_usual_is_told() -> Iterator[None]:
    """Of submissions that go as usual, no lines are written."""
    configure_logging("info", "json", 0.0)
    yield
    configure_logging("info", "json")


@pytest.fixture(scope="module", params=SCHEMES)
def way(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Way:
    """How the transport of production and its servers speak: each in turn."""
    return Way(request.param, tmp_path_factory.mktemp("certificate"))


@pytest.fixture
async def transport(way: Way) -> AsyncIterator[ConnectionPool]:
    """Open, with time limits of a test's."""
    async with way.transport() as opened:
        yield opened
