"""docs/guides/client.md, followed to the letter against `make run`; and the tour of `make demo`, which is made with the client."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from tests.support.deployment.guide import files_of
from tools.servers.server_process import LOCALHOST, free_ports

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs" / "guides" / "client.md"
CLIENT = ROOT / "clients" / "python"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SECONDS = 60
EVENT = '{"type":"webhook.test.v1","timestamp":"2027-01-15T09:30:00.412Z","data":{"endpointId":"whk_1"}}'


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reader's directory with the guide's files."""
    directory = tmp_path_factory.mktemp("desk")
    for name, text in files_of(GUIDE).items():
        (directory / name).write_text(text, encoding="utf-8")
    return directory


@pytest.mark.slow  # programs of guides are for `make guides`
async def test_the_guides_programs_book(desk: Path, running: Mapping[str, str]) -> None:
    printed = await asyncio.to_thread(_run, desk, running, "book.py")
    assert printed[0].startswith("booked as ")
    assert printed[0].endswith(" for 480.5 EUR")
    assert printed[1] == "refused: /currency invalid_value"
    assert printed[2:5] == ["safe"] * 3
    assert any(" A-7 2031-06-01" in line for line in printed[5:-1])
    assert printed[-1] == "cancelled: CANCELLED"
    together = await asyncio.to_thread(_run, desk, running, "together.py")
    assert together[:3] == ["CONFIRMED"] * 3
    assert sorted(together[3:]) == ["C-0", "C-1", "C-2"]
    hooks = await asyncio.to_thread(_run, desk, running, "hooks.py", "https://bookings.example/in")
    assert "whsec_" in hooks[0]
    assert [line.split()[0] for line in hooks[1:]] == ["webhook.test.v1"]


async def test_the_tour_of_make_demo_ends(desk: Path, running: Mapping[str, str]) -> None:
    tour = await asyncio.to_thread(_run, desk, running, str(CLIENT / "examples" / "demo.py"))
    assert "That was the tour." in tour[-1]
    assert any("CONFIRMED after" in line for line in tour)


def _run(desk: Path, environment: Mapping[str, str], *arguments: str) -> list[str]:
    """The lines that it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=desk,
        env={**os.environ, "PYTHONPATH": str(CLIENT), **environment},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip().splitlines()


@pytest.fixture
def receiver(desk: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    (port,) = free_ports(1)
    with subprocess.Popen(
        [sys.executable, "receive.py", str(port)],
        cwd=desk,
        env={**os.environ, "PYTHONPATH": str(CLIENT), "WEBHOOK_SECRET": SECRET},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        yield process, port
        process.terminate()


def test_the_guides_receiver_takes_what_was_signed_and_nothing_else(
    receiver: tuple[subprocess.Popen[str], int],
) -> None:
    process, port = receiver
    sent = datetime.now(UTC)
    headers = {
        "webhook-id": "evt.1",
        "webhook-timestamp": str(int(sent.timestamp())),
        "webhook-signature": Webhook(SECRET).sign("evt.1", sent, EVENT),
    }
    assert _post(port, EVENT, headers) == 204
    assert _post(port, EVENT, headers) == 204
    assert _post(port, EVENT.replace("whk_1", "whk_2"), headers) == 400
    assert _post(port, EVENT, {**headers, "webhook-id": "evt.2"}) == 400
    process.terminate()
    assert process.stdout is not None
    assert process.stdout.read() == "webhook.test.v1 None\n"


def _post(port: int, body: str, headers: Mapping[str, str]) -> int:
    """The status; the receiver is given a moment to listen."""
    until = time.monotonic() + SECONDS
    while True:
        connection = HTTPConnection(LOCALHOST, port, timeout=SECONDS)
        try:
            connection.request("POST", "/", body, dict(headers))
            return connection.getresponse().status
        except ConnectionRefusedError:
            assert time.monotonic() < until
            time.sleep(0.02)
        finally:
            connection.close()
