"""The fixtures that every suite shares: the backends, their servers, and databases on them."""

import asyncio
import gc
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import structlog
from xdist.remote import Producer
from xdist.workermanage import WorkerController

from forwarder.store.migrate import migrate
from forwarder.topics.embedded.log import EmbeddedLog
from forwarder.topics.kafka.log import KafkaLog
from forwarder.topics.port import Log
from tests.support.backends import BACKENDS, Backend, missing
from tests.support.side_by_side import ByFile, Section, longest_first, pass_on, said, say, spread_collecting, take_over
from tools.servers.kafka.process import KafkaCluster
from tools.servers.ladder import Unavailable
from tools.servers.lent_servers import Lender
from tools.servers.postgres.databases import EmptiedDatabases, new_database
from tools.servers.postgres.process import PostgresServer
from tools.servers.real_servers import RealServers

_servers = pytest.StashKey[RealServers]()
_lender = pytest.StashKey[Lender]()


def pytest_configure(config: pytest.Config) -> None:
    lent_by = getattr(config, "workerinput", {}).get("servers")
    servers = RealServers(for_tests=True, lent_by=lent_by)
    config.stash[_servers] = servers.__enter__()
    config.add_cleanup(servers.__exit__)
    # The default renderer takes a tenth of the time of most tests, and a second for a traceback.
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["level", "event"]),
        ]
    )
    # httpx looks for it in every folder of the path, at each request to an application in this process.
    sys.modules["sniffio"] = None  # type: ignore[assignment]
    spread_collecting(config)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    node.workerinput["servers"] = _lender_of(node.config).address


def _lender_of(config: pytest.Config) -> Lender:
    """What lends the servers of this process to the others."""
    if _lender not in config.stash:
        servers = config.stash[_servers]
        lender = Lender(servers.reaper.directory(), {"kafka": servers.kafka, "postgres": servers.postgres})
        config.stash[_lender] = lender.__enter__()
        config.add_cleanup(lender.__exit__)
    return config.stash[_lender]


def pytest_report_header(config: pytest.Config) -> list[str]:
    return [f"backend {line}" for line in config.stash[_servers].planned()]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    longest_first(items)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end: looking through it for garbage, again and again, is a fifth of the collecting."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    return ByFile(config, log)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    say(config, Section("", [f"backend {line}" for line in config.stash[_servers].found()]))
    pass_on(config)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: WorkerController) -> None:
    take_over(node.config, getattr(node, "workeroutput", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for title, lines in said(config):
        if title:
            terminalreporter.section(title)
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture
def no_log_lines() -> Iterator[None]:
    """Nothing is logged: for tests that would log very much."""

    def drop(*_: object) -> str:
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[drop])
    yield
    structlog.configure(**before)


@pytest.fixture(scope="session")
def real_servers(pytestconfig: pytest.Config) -> RealServers:
    """The real servers, each started when it is first asked for."""
    return pytestconfig.stash[_servers]


@pytest.fixture(scope="session")
def kafka_bootstrap(real_servers: RealServers) -> str:
    """Where the shared Kafka is. Other tests use it at the same time: give topics and groups names that no other test has."""
    try:
        return real_servers.kafka.address()
    except Unavailable as reason:
        missing(reason)


@pytest.fixture(scope="session")
def postgres_url(real_servers: RealServers) -> str:
    """The maintenance database of the shared PostgreSQL; tests take `database_url`."""
    try:
        return real_servers.postgres.address()
    except Unavailable as reason:
        missing(reason)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    """Runs the test once on each backend."""
    chosen: Backend = request.param
    return chosen


@pytest.fixture
async def postgres_database_url(postgres_url: str) -> AsyncIterator[str]:
    """A new empty PostgreSQL database, dropped afterwards."""
    async with new_database(postgres_url) as url:
        yield url


@pytest.fixture
def sqlite_database_url(tmp_path: Path) -> str:
    """A SQLite database that does not exist yet."""
    return f"sqlite+aiosqlite:///{tmp_path / 'store.sqlite3'}"


@pytest.fixture
def database_url(backend: Backend, request: pytest.FixtureRequest) -> str:
    """A new empty database of the backend: SQLite where it is embedded, PostgreSQL where it is distributed."""
    url: str = request.getfixturevalue("sqlite_database_url" if backend == "embedded" else "postgres_database_url")
    return url


@pytest.fixture(scope="session")
def migrated_template(postgres_url: str) -> Iterator[str]:
    """A migrated PostgreSQL database, to be copied: that takes a tenth of the time of migrating another one."""
    with asyncio.Runner() as runner:
        database = new_database(postgres_url)
        url = runner.run(database.__aenter__())
        runner.run(migrate(url))
        yield url
        runner.run(database.__aexit__(None, None, None))


@pytest.fixture
async def new_postgres_url(postgres_url: str, migrated_template: str) -> AsyncIterator[str]:
    """A new PostgreSQL database with every table and nothing ever in them: for tests of how queries are planned."""
    async with new_database(postgres_url, template=migrated_template) as url:
        yield url


@pytest.fixture(scope="session")
def _emptied_databases(postgres_url: str, migrated_template: str) -> Iterator[EmptiedDatabases]:
    databases = EmptiedDatabases(postgres_url, migrated_template)
    yield databases
    asyncio.run(databases.close())


@pytest.fixture
async def migrated_postgres_url(_emptied_databases: EmptiedDatabases) -> AsyncIterator[str]:
    """A PostgreSQL database of the test's own, with every table and no rows."""
    async with _emptied_databases.lent() as url:
        yield url


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite database, to be copied."""
    path = tmp_path_factory.mktemp("migrated") / "store.sqlite3"
    asyncio.run(migrate(path))
    return path


@pytest.fixture
def data_dir(tmp_path: Path, migrated_file: Path) -> Path:
    """The test's own directory, with an embedded forwarder's store in it: every table and no rows."""
    shutil.copy(migrated_file, tmp_path)
    return tmp_path


@pytest.fixture
def migrated_sqlite_url(migrated_file: Path) -> Iterator[str]:
    """A SQLite database with every table and no rows, always of one name: an engine on it can be used again."""
    path = migrated_file.with_name("copy.sqlite3")
    shutil.copy(migrated_file, path)
    yield f"sqlite+aiosqlite:///{path}"
    for file in path.parent.glob(f"{path.name}*"):  # its write-ahead log too
        file.unlink()


@pytest.fixture
def migrated_url(backend: Backend, request: pytest.FixtureRequest) -> str:
    """A new database of the backend, with every table and no rows."""
    url: str = request.getfixturevalue("migrated_sqlite_url" if backend == "embedded" else "migrated_postgres_url")
    return url


@pytest.fixture
def log(backend: Backend, request: pytest.FixtureRequest, tmp_path: Path) -> Log:
    """The log of the backend. On Kafka its topics are everybody's: make yours by `tests.support.log.messages.new_topic`."""
    if backend == "embedded":
        return EmbeddedLog(tmp_path / "log.sqlite3")
    return KafkaLog(request.getfixturevalue("kafka_bootstrap"))


@pytest.fixture(scope="module")
def _kafka_to_kill(real_servers: RealServers) -> Iterator[KafkaCluster]:
    try:
        cluster = KafkaCluster(real_servers.reaper)
    except Unavailable as reason:
        missing(reason)
    yield cluster
    cluster.kill()


@pytest.fixture
def kafka_to_kill(_kafka_to_kill: KafkaCluster) -> KafkaCluster:
    """A local broker of the module's own, running, whatever the test before did to it."""
    _kafka_to_kill.start()
    return _kafka_to_kill


@pytest.fixture
def kafka_cluster(real_servers: RealServers) -> Iterator[Callable[[int], KafkaCluster]]:
    """Makes and starts a local cluster of 1 or 3 brokers that is the test's own, to be killed and brought back."""
    with ExitStack() as stack:

        def start(brokers: int) -> KafkaCluster:
            try:
                cluster = KafkaCluster(real_servers.reaper, brokers=brokers)
                stack.callback(cluster.kill)  # nobody wants its data
                cluster.start()
            except Unavailable as reason:
                missing(reason)
            return cluster

        yield start


@pytest.fixture
def postgres_server(real_servers: RealServers) -> Iterator[PostgresServer]:
    """A started PostgreSQL that is the test's own, to be killed and brought back."""
    with ExitStack() as stack:
        try:
            server = PostgresServer(real_servers.reaper)
            stack.callback(server.stop)
            server.start()
        except Unavailable as reason:
            missing(reason)
        yield server
