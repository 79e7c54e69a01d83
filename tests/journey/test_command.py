"""The command as people and scripts use it: what it prints, its exit codes, and a clean stop."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest

from tests.support.backends import slow_on
from tests.support.cases import for_each
from tests.support.deployment import warm
from tests.support.deployment.deployment import Deployment, booking
from tests.support.profile import some
from tools.servers.server_process import free_ports

_ESTABLISHED, _LISTENING = "01", "0A"  # in /proc/net/tcp


def _forwarder(directory: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FORWARDER_")}
    return subprocess.run(
        [sys.executable, "-m", "forwarder", *arguments],
        cwd=directory,
        env={**clean, "PYTHONPATH": str(Path(__file__).parents[2]), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def _forked(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The same, started in a tenth of the time."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FORWARDER_")}
    return warm.run(arguments, {**clean, "FORWARDER_DATA_DIR": str(directory / ".forwarder")})


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A deployment with one workspace, in which commands are refused: they change nothing."""
    directory = tmp_path_factory.mktemp("unchanged")
    assert _forked(directory, "workspace", "add", "w").returncode == 0
    return directory


def test_a_workspace_a_key_and_an_account_are_made_and_listed(tmp_path: Path) -> None:
    assert json.loads(_forwarder(tmp_path, "workspace", "add", "acme", "--json").stdout) == {"id": "acme"}
    key = json.loads(_forwarder(tmp_path, "key", "add", "--workspace", "acme", "--json").stdout)
    assert key["token"].startswith("fwd_")
    options = [
        "--workspace",
        "acme",
        "--kind",
        "generic",
        "--base-url",
        "https://pms.test/api/",
        "--credential",
        "secret",
    ]
    limits = ["--concurrency", "3", "--rate", "1.5", "--id", "acme-pms"]
    assert json.loads(_forked(tmp_path, "account", "add", *options, *limits, "--json").stdout) == {"id": "acme-pms"}
    _forked(tmp_path, "account", "pause", "acme-pms")
    (account,) = json.loads(_forked(tmp_path, "account", "list", "--json").stdout)
    assert account == {
        "id": "acme-pms",
        "workspace": "acme",
        "kind": "generic",
        "baseUrl": "https://pms.test/api",
        "concurrency": 3,
        "ratePerSecond": 1.5,
        "deadlineSeconds": 86400,
        "duplicateWindowSeconds": 300,
        "similar": "allow",
        "paused": True,
        "settlesSeconds": None,
        "options": {},
        "skippedChecks": [],
        "ownAuthorities": False,
        "clientCertificate": False,
    }
    assert "secret" not in _forked(tmp_path, "account", "list").stdout
    assert json.loads(_forked(tmp_path, "key", "revoke", key["id"], "--json").stdout)["revoked"] is True


_CANNOT_BE_DONE = (
    (("workspace", "add"), 2, "ID"),
    (("nonsense",), 2, "nonsense"),
    (("key", "add", "--workspace", "nobody"), 1, "nobody"),
    (("key", "revoke", "key_none"), 1, "key_none"),
    (("account", "pause", "none"), 1, "none"),
    (("account", "add", "--workspace", "w", "--kind", "fax", "--base-url", "http://x"), 2, "generic"),
    (("account", "add", "--workspace", "w", "--kind", "generic", "--base-url", "ftp://x"), 2, "http://"),
    (("submissions", "show", "rsv_none"), 1, "rsv_none"),
    (("submissions", "list", "--status", "lost"), 2, "PENDING"),
    (("submissions", "settle", "rsv_none", "--not-made"), 1, "rsv_none"),
    (("dead-letters", "show", "rsv_none.1"), 1, "rsv_none.1"),
    (("dead-letters", "replay", "rsv_none.1"), 1, "rsv_none.1"),
    (("simulate", "--fault", "gremlins", "--fault-rate", "1", "--port", "0"), 2, "hang"),
)


@for_each(("arguments", "code", "says"), some(_CANNOT_BE_DONE, 3))  # `tests/stage/cli` goes through each command's own
def test_what_cannot_be_done_is_said_in_words_and_by_exit_code(
    unchanged: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    done = _forked(unchanged, *arguments)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


_IN_A_DEPLOYMENT = (
    ("account", "list"),
    ("account", "add", "--workspace", "w", "--kind", "generic", "--base-url", "http://pms.test"),
    ("audit", "list"),
    ("dead-letters", "list"),
    ("doctor",),
    ("doubles", "list"),
    ("key", "add", "--workspace", "w"),
    ("listen", "--forward-to", "http://127.0.0.1:1/"),
    ("purge", "--before", "2027-01-01", "--yes"),
    ("results", "tail", "--no-follow"),
    ("retention", "show"),
    ("scan", "--pan"),
    ("secret", "status"),
    ("status",),
    ("submissions", "list"),
    ("submissions", "show", "rsv_none"),
    ("topics", "list"),
    ("webhook", "list"),
)


@for_each("arguments", some(_IN_A_DEPLOYMENT, 4))  # the others in `make test-all`
def test_a_command_in_another_directory_makes_no_deployment_there(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = _forked(tmp_path, *arguments)
    assert done.returncode == 1, done.stderr
    assert f"no forwarder data in {tmp_path / '.forwarder'}; set FORWARDER_DATA_DIR" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_half_a_configuration_is_wrong_usage(tmp_path: Path) -> None:
    done = _forwarder(tmp_path, "ingress", FORWARDER_KAFKA_BOOTSTRAP_SERVERS="localhost:1")
    assert (done.returncode, "FORWARDER_DATABASE_URL is missing" in done.stderr) == (2, True)


def test_a_taken_port_is_said_in_words(tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = _forked(tmp_path, "up", "--port", str(taken.getsockname()[1]))
    assert (done.returncode, "cannot listen" in done.stderr) == (1, True)


@slow_on("distributed")
async def test_submissions_are_shown_to_operators(deployment: Deployment) -> None:
    made = await deployment.submit("generic", booking(1), Prefer="wait=20")
    request_id = made.json()["data"]["requestId"]
    (listed,) = await deployment.listed("submissions", "list", "--status", "confirmed")
    assert (listed["requestId"], listed["status"], listed["attempts"]) == (request_id, "CONFIRMED", 1)
    shown = await deployment.command("submissions", "show", request_id)
    assert shown["record"] == made.json()["data"]
    assert shown["attempts"][0]["outcome"] == "confirmed"


@slow_on("embedded")
async def test_each_process_stops_cleanly_and_loses_nothing(deployment: Deployment) -> None:
    """SIGTERM in the middle: what is under way finishes, the rest is given back, exit 0; the next start goes on at once."""
    await deployment.client.put(f"{deployment.url('simulate')}/generic/faults", json={"delay_ms": 200})
    answers = await asyncio.gather(*(deployment.submit("generic", booking(number)) for number in range(40)))
    assert {answer.status_code for answer in answers} == {202}
    codes = {role: await asyncio.to_thread(deployment.processes[role].end, signal.SIGTERM) for role in deployment.roles}
    assert set(codes.values()) == {0}, codes
    await deployment.client.delete(f"{deployment.url('simulate')}/generic/faults")
    await deployment.start()
    records = await deployment.all_settled("generic", 40)
    assert {record["status"] for record in records} == {"CONFIRMED"}
    assert (await deployment.made())["made"] == 40


def test_several_processes_share_one_port_and_end_together(tmp_path: Path) -> None:
    """The parent is killed with -9: its children end by themselves, and the port is free again."""
    with _two_processes(tmp_path) as (parent, port):
        _until(lambda: _answers(port))
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        _until(lambda: not _answers(port))


@pytest.mark.slow  # the next longest journey: several processes on one port run above
@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="what listens is read from Linux's /proc")
def test_several_processes_share_the_connections_out(tmp_path: Path) -> None:
    """Also when one was killed and started again. They end with exit code 0, with connections that are open and idle."""
    with _two_processes(tmp_path) as (parent, port):
        with ExitStack() as kept:
            first, _ = _shared_out(parent, port, kept)
            os.kill(first, signal.SIGKILL)
            _until(lambda: first not in warm.children(parent.pid))
        with ExitStack() as kept:
            assert first not in _shared_out(parent, port, kept)
            parent.send_signal(signal.SIGTERM)
            assert parent.wait(30) == 0
        assert not _answers(port)


def _shared_out(parent: warm.WarmProcess, port: int, kept: ExitStack) -> list[int]:
    """Open so many connections that chance does not give nearly all of them to one process; the children."""
    _until(lambda: len(_sockets(port, _LISTENING)) == 2)
    for _ in range(64):
        client = kept.enter_context(closing(HTTPConnection("127.0.0.1", port)))
        client.request("GET", "/healthz")
        assert client.getresponse().read()
    processes = warm.children(parent.pid)
    established = _sockets(port, _ESTABLISHED)
    counts = [len(established & _open_in(process)) for process in processes]
    assert (sum(counts), len(counts)) == (64, 2)
    assert min(counts) >= 12  # once in a million times it is less
    return processes


@contextmanager
def _two_processes(directory: Path) -> Iterator[tuple[warm.WarmProcess, int]]:
    """The parent is forked; it starts its children as it always does."""
    (port,) = free_ports(1)
    arguments = ["query", "--port", str(port), "--processes", "2"]
    environment = {
        **os.environ,
        "FORWARDER_DATA_DIR": str(directory),
        "FORWARDER_LOG_FORMAT": "json",
        "FORWARDER_LAME_DUCK_SECONDS": "0",  # nobody balances here
    }
    with (directory / "log").open("wb") as log:
        parent = warm.start(arguments, environment, log, log)
    try:
        _until(lambda: (directory / "log").read_text().count("process.listening") == 2)
        yield parent, port
    finally:
        parent.send_signal(signal.SIGTERM)
        parent.wait()


def _sockets(port: int, state: str) -> set[str]:
    """Those of this port in that state, as a process's list of open files has them."""
    lines = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return {f"socket:[{line[9]}]" for line in lines if line[1].endswith(f":{port:04X}") and line[3] == state}


def _open_in(process: int) -> set[str]:
    found = set()
    for file in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found.add(str(file.readlink()))
    return found


def _answers(port: int) -> bool:
    with closing(HTTPConnection("127.0.0.1", port)) as client:
        try:
            client.request("GET", "/healthz")
            return client.getresponse().status == 200
        except (OSError, HTTPException):
            return False


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
