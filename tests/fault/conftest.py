"""The campaign: its form and seed, its report, and the service that its cases share.

pytest tests/fault                                  the short form, another seed each time
pytest tests/fault --faults=long --faults-seed=7    the long form, which writes docs/explanation/reliability.md
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import pytest
import pytest_asyncio

from tests.fault.campaign.case import Case
from tests.fault.campaign.form import Form, Length
from tests.fault.campaign.report import Report
from tests.fault.campaign.service import Service, open_service
from tests.support.backends import missing
from tests.support.deployment.site import Site, site_settings
from tests.support.side_by_side import Section, say
from tools.servers.kafka.process import KafkaCluster
from tools.servers.ladder import Unavailable
from tools.servers.postgres.process import PostgresServer
from tools.servers.real_servers import RealServers
from tools.servers.surroundings import surroundings

NewCase = Callable[[Service], Case]

_HERE = "tests/fault/"
_PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "reliability.md"
_LONG_CASE_SECONDS = 1800
_SEEDS = 1_000_000
_FEW_BYTES, _DEFAULT_BYTES = 8 * 1024**2, 32 * 1024**2
"""Of bodies that an ingress has in memory: where it takes fewer, a smaller crowd is too many."""

_report = pytest.StashKey[Report]()
_left_out = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("faults")
    group.addoption("--faults", choices=("short", "long"), default="short", help="how long the fault suite is")
    group.addoption("--faults-count", type=int, default=None, help="submissions of test_everything.py")
    group.addoption(
        "--faults-minutes", type=float, default=24 * 60.0, help="how long test_everything.py submits at most"
    )
    group.addoption("--faults-seed", type=int, default=None, help="what the fault suite draws its faults from")


def pytest_configure(config: pytest.Config) -> None:
    # The options are not there where this file is met only as its tests are collected.
    seed = config.getoption("faults_seed", None)
    length = cast("Length", config.getoption("faults", "short"))
    config.stash[_report] = Report(
        Form(
            length,
            random.randrange(_SEEDS) if seed is None else seed,
            config.getoption("faults_count", None),
            config.getoption("faults_minutes", 0.0),
        )
    )
    config.stash[_left_out] = []


def _is_ours(item: pytest.Item) -> bool:
    return item.nodeid.startswith(_HERE)


def pytest_collection_modifyitems(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    for item in items:
        if _is_ours(item) and pytest_asyncio.is_async_test(item):
            # The service is one for all cases, and so is the loop that its connections belong to.
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
            if config.stash[_report].form.length == "long":
                item.add_marker(pytest.mark.timeout(_LONG_CASE_SECONDS))


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    for item in items:
        if _is_ours(item):
            item.config.stash[_left_out].append(item.name)


def pytest_report_collectionfinish(config: pytest.Config, items: Sequence[pytest.Item]) -> str:
    fault_cases = any(map(_is_ours, items))
    return f"faults: {config.stash[_report].form}" if fault_cases else ""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and _is_ours(item):
        form = item.config.stash[_report].form
        report.sections.append(("again, with the same faults", form.command(item.name.partition("[")[0])))
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    report = config.stash[_report]
    if not report.rows:
        return
    lines = report.text()
    if report.form.length == "long" and not config.stash[_left_out]:
        report.write(_PAGE, surroundings())
        lines.append(f"written to {_PAGE}")
    say(config, Section(f"faults, {report.form}", lines))


@pytest.fixture(scope="session")
def form(pytestconfig: pytest.Config) -> Form:
    return pytestconfig.stash[_report].form


@pytest.fixture(scope="session")
def kafka(real_servers: RealServers) -> Iterator[KafkaCluster]:
    """The shared service's one broker."""
    with ExitStack() as stack:
        try:
            cluster = KafkaCluster(real_servers.reaper)
        except Unavailable as reason:
            missing(reason)
        stack.callback(cluster.kill)  # nobody wants its data
        yield cluster


@pytest.fixture(scope="session")
def postgres(real_servers: RealServers) -> Iterator[PostgresServer]:
    """The shared service's PostgreSQL."""
    with ExitStack() as stack:
        try:
            server = PostgresServer(real_servers.reaper)
        except Unavailable as reason:
            missing(reason)
        stack.callback(server.stop)
        yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_service(
    kafka: KafkaCluster,
    postgres: PostgresServer,
    real_servers: RealServers,
    tmp_path_factory: pytest.TempPathFactory,
    form: Form,
) -> AsyncIterator[Service]:
    """A distributed forwarder on engines of its own, which most cases share."""
    await asyncio.gather(asyncio.to_thread(kafka.start), asyncio.to_thread(postgres.start))
    directory = tmp_path_factory.mktemp("service")
    settings = site_settings("distributed", directory, kafka.bootstrap_servers, postgres.url)
    settings["FORWARDER_MAX_REQUEST_BYTES"] = str(form.times(short=_FEW_BYTES, long=_DEFAULT_BYTES))
    async with open_service(Site("distributed", directory, settings, real_servers.reaper), kafka, postgres) as service:
        yield service


@pytest.fixture
def new_case(request: pytest.FixtureRequest) -> NewCase:
    """Makes the test's case in a service of its choice."""
    report = request.config.stash[_report]
    name = request.node.name.removeprefix("test_").replace("_", " ")
    return lambda service: Case(name, service, report.form, report)


@pytest_asyncio.fixture(loop_scope="session")
async def case(shared_service: Service, new_case: NewCase) -> Case:
    """The test's own case in the shared service, which is whole."""
    await shared_service.mend()
    return new_case(shared_service)
