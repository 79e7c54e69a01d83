"""The specification of the service, requirement by requirement, as a caller meets it who has read nothing else: over HTTP, on a
whole forwarder. What is required stands in the tables beside this module; a test's name is the section and the row."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from tests.journey.specification.creations import (
    BOOKING_ENGINE_REQUEST,
    COUNTRY_CODES,
    GENERAL_REQUEST,
    PAYMENT_CHANNELS,
)
from tests.journey.specification.endpoints import (
    BOOKING_ENGINE_ENDPOINT,
    GENERAL_ENDPOINT,
    HEADERS,
    LIST_ENDPOINT,
    PAGES,
    VERSIONS,
)
from tests.journey.specification.house import House, open_house
from tests.journey.specification.records import FAILURES, RECORD, STATES
from tests.journey.specification.requirement import Call, Row
from tests.support.backends import Backend
from tests.support.deployment.site import Site, site_settings
from tools.servers.postgres.databases import new_database
from tools.servers.real_servers import RealServers

SECTIONS: Mapping[str, Sequence[Row]] = {
    "2.1": BOOKING_ENGINE_REQUEST,
    "2.2": GENERAL_REQUEST,
    "2.3": PAYMENT_CHANNELS,
    "2.4": COUNTRY_CODES,
    "2.5": RECORD,
    "3": STATES,
    "4.1": BOOKING_ENGINE_ENDPOINT,
    "4.2": GENERAL_ENDPOINT,
    "4.3": LIST_ENDPOINT,
    "5": HEADERS,
    "7": FAILURES,
    "8": PAGES,
    "9": VERSIONS,
}
"""Sections 1 and 6 require nothing that could be asked for."""

ROWS = [
    pytest.param(row, id=f"{section}-{row.name}") for section, requirements in SECTIONS.items() for row in requirements
]

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module", params=["embedded", pytest.param("distributed", marks=pytest.mark.slow)])
def engines(request: pytest.FixtureRequest) -> tuple[Backend, str | None, str | None]:
    """The backend, its Kafka and its PostgreSQL."""
    backend: Backend = request.param
    if backend == "embedded":
        return backend, None, None
    return backend, request.getfixturevalue("kafka_bootstrap"), request.getfixturevalue("postgres_url")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(
    engines: tuple[Backend, str | None, str | None],
    real_servers: RealServers,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[House]:
    """One for all requirements."""
    backend, kafka, postgres = engines
    directory = tmp_path_factory.mktemp("specification")
    async with AsyncExitStack() as stack:
        database = None if postgres is None else await stack.enter_async_context(new_database(postgres))
        settings = site_settings(backend, directory, kafka, database)
        yield await stack.enter_async_context(open_house(Site(backend, directory, settings, real_servers.reaper)))


@pytest.mark.parametrize("row", ROWS)
async def test_the_specification(house: House, row: Row) -> None:
    calls = [row.calls] if isinstance(row.calls, Call) else row.calls
    for answer in await asyncio.gather(*map(house.answer, calls)):
        row.expected(answer)
