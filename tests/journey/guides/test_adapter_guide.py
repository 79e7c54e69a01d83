"""docs/guides/write-an-adapter.md, followed to the letter: its code is written down, registered, checked and booked through."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.deployment import warm
from tests.support.deployment.deployment import Deployment, Site, booking, deploy, site_settings
from tests.support.deployment.guide import files_of, install
from tools.servers.real_servers import RealServers
from tools.servers.server_process import LOCALHOST, free_ports

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs" / "guides" / "write-an-adapter.md"
KEY = "a-key-of-the-fax-gateway"


@pytest.fixture(scope="module")
def acme(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reader's directory, installed."""
    directory = tmp_path_factory.mktemp("acme-fax")
    install(files_of(GUIDE), directory)
    return directory


@pytest.fixture(scope="module")
def gateway(acme: Path) -> Iterator[str]:
    """The base URL of the stand-in, run as the guide says."""
    with _gateway(acme) as url:
        yield url


@contextmanager
def _gateway(acme: Path) -> Iterator[str]:
    (port,) = free_ports(1)
    waiting = "import socket,sys,time\nfor _ in range(500):\n"
    waiting += (
        f"    if not socket.socket().connect_ex(('{LOCALHOST}', {port})): sys.exit()\n    time.sleep(0.02)\nsys.exit(1)"
    )
    with subprocess.Popen([sys.executable, "fax_server.py", str(port)], cwd=acme) as process:
        try:
            subprocess.run([sys.executable, "-c", waiting], check=True)
            yield f"http://{LOCALHOST}:{port}/api"
        finally:
            process.terminate()


def test_the_guides_files_are_all_there(acme: Path) -> None:
    assert {path.name for path in acme.iterdir() if path.is_file()} == {
        "acme_fax.py",
        "fax_server.py",
        "pyproject.toml",
        "test_acme_fax.py",
    }


@pytest.mark.slow  # the conformance kit, once more
def test_its_tests_pass(acme: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", "test_acme_fax.py"],
        cwd=acme,
        env=_environment(acme),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert " passed" in done.stdout
    assert "6 skipped" in done.stdout  # no keys, no batches, and found by its reference alone: what a fax has not


def test_the_kind_is_listed_with_where_it_comes_from(acme: Path) -> None:
    (fax,) = [row for row in json.loads(_forwarder(acme, "adapters", "list", "--json").stdout) if row["kind"] == "fax"]
    assert fax["from"] == "acme-fax 1.0"
    assert fax["limits"] == [{"requests": 600, "seconds": 60.0}]
    (station,) = fax["options"]
    assert station["name"] == "station"
    assert station["description"].startswith("The fax machine")


@pytest.mark.slow  # the same
def test_the_command_finds_that_it_keeps_its_word(acme: Path, gateway: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    options = ["--base-url", gateway, "--credential-file", str(tmp_path / "key")]
    quick = [part for name in ("finds-by-reference", "cancels", "looks-up-truly") for part in ("--check", name)]
    done = _forwarder(acme, "adapters", "check", "fax", *options, *quick, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [result["verdict"] for result in json.loads(done.stdout)] == ["passed"] * 3


@pytest.mark.slow  # a whole deployment; for a change, the kind is found and listed
async def test_a_reservation_goes_through_it(
    acme: Path, gateway: str, tmp_path: Path, real_servers: RealServers
) -> None:
    settings = {**site_settings("embedded", tmp_path, None, None), "PYTHONPATH": str(acme)}
    async with deploy(Site("embedded", tmp_path, settings, real_servers.reaper)) as deployment:
        await _add_fax(deployment, gateway, tmp_path / "key")
        answer = await deployment.submit("hotel-fax", booking(1))
        assert answer.status_code == 202, answer.text
        (record,) = await deployment.all_settled("hotel-fax", 1)
    assert record["status"] == "CONFIRMED"
    assert record["pmsReservationId"].startswith("F")
    assert record["finances"]["totalPrice"] == 480.5


async def _add_fax(deployment: Deployment, gateway: str, key: Path) -> None:
    key.write_text(f"{KEY}\n")
    await deployment.command(
        *(
            "account",
            "add",
            "--workspace",
            "demo",
            "--kind",
            "fax",
            "--base-url",
            gateway,
            "--credential-file",
            str(key),
        ),
        *("--id", "hotel-fax"),
    )


def _forwarder(acme: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return warm.run(arguments, _environment(acme))


def _environment(acme: Path) -> Mapping[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FORWARDER_")}
    return {**kept, "PYTHONPATH": f"{acme}{os.pathsep}{ROOT}"}
