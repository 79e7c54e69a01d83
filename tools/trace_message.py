"""Which of the forwarder's files one message passes: `make trace`.

Starts the embedded forwarder, each stage as a process of its own, on a simulated PMS, then follows one POST of a reservation
(to the ingress), its delivery (in the worker: from the message consumed to the result published) and one page (of the query
stage) through the running code, and prints `POST N`, `delivery N` and `page N`, each with the N files under `forwarder/` of which
some function ran for that message: helpers, logging and metrics included, on whichever thread.

How it tells: a profile function notes every call as a pair of caller and callee. Pairs that were seen while nothing was sent are
left out: an idle stage polls, renews its lease and sweeps anyway. So are pairs seen only now and then: one counts where nearly
every one of several like messages had it. By then, what runs once and is remembered (imports, caches) is over. The simulator is
another process, and not counted; nor is a module of which only constants and types are used: nothing in it runs.
"""

import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any, Final

import httpx

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = f"{ROOT / 'forwarder'}{os.sep}"
STAGES: Final = ("simulate", "ingress", "worker", "query")
WINDOW_SECONDS: Final = 1.0
IDLE_WINDOWS: Final = 6
MESSAGES: Final = 9
NEARLY_ALL: Final = 6

Pair = tuple[str, str, str]
"""The caller's file, the callee's file, and the callee."""


# --- in a stage's process ----------------------------------------------------------------------------------------------


class Recorder:
    """Sees every call of this process. Commands come as lines on standard input: `clear`, or `tell` for a line of JSON."""

    def __init__(self) -> None:
        self._seen: set[tuple[CodeType | None, CodeType]] = set()

    def install(self) -> None:
        threading.Thread(target=self._obey, daemon=True).start()
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            caller = frame.f_back
            self._seen.add((caller and caller.f_code, frame.f_code))

    def _obey(self) -> None:
        for command in sys.stdin:
            if command.strip() == "clear":
                self._seen = set()
            seen = sorted({_pair(caller, callee) for caller, callee in list(self._seen)})
            print(json.dumps(seen), flush=True)


def _pair(caller: CodeType | None, callee: CodeType) -> Pair:
    called_from = "" if caller is None else caller.co_filename
    return called_from, callee.co_filename.removeprefix(PACKAGE), f"{callee.co_qualname}:{callee.co_firstlineno}"


def run_stage(arguments: list[str]) -> None:
    """The forwarder's own command, watched."""
    from forwarder.cli.program import run  # noqa: PLC0415 - for the stages' processes alone

    Recorder().install()
    sys.argv = ["forwarder", *arguments]
    run()


# --- in the process that asks -------------------------------------------------------------------------------------------


class Stage:
    """A stage in a process of its own."""

    def __init__(self, name: str, environment: Mapping[str, str]) -> None:
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._process = subprocess.Popen(
            [sys.executable, __file__, name, "--host", "127.0.0.1", "--port", str(port)],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, command: str) -> frozenset[Pair]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return frozenset((str(a), str(b), str(c)) for a, b, c in json.loads(self._process.stdout.readline()))

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                if httpx.get(f"{self.url}/readyz").status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                pass
            if self._process.poll() is not None:
                break
            time.sleep(0.05)
        raise SystemExit(f"the stage at {self.url} did not become ready")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)


@contextmanager
def site() -> Iterator[tuple[Mapping[str, Stage], Mapping[str, str]]]:
    """The stages by name, and the headers of a caller."""
    with ExitStack() as stack:
        environment = {
            "FORWARDER_DATA_DIR": stack.enter_context(TemporaryDirectory()),
            "FORWARDER_SECRET_KEY": secrets.token_hex(16),
            "FORWARDER_LOG_FORMAT": "json",
            "PYTHONPATH": str(ROOT),
        }
        started: dict[str, Stage] = {}
        token = ""
        for name in STAGES:
            if name == "ingress":
                token = _set_up(environment, started["simulate"].url)
            started[name] = Stage(name, environment)
            stack.callback(started[name].stop)
            if name != "simulate":
                started[name].wait_until_ready()
        headers = {"authorization": f"Bearer {token}", "workspaceId": "trace", "integrationAccountId": "traced"}
        yield started, headers


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _set_up(environment: Mapping[str, str], pms_url: str) -> str:
    def forwarder(*arguments: str) -> str:
        command = [sys.executable, "-m", "forwarder", *arguments]
        return subprocess.run(
            command, env={**os.environ, **environment}, check=True, capture_output=True, text=True
        ).stdout

    forwarder("migrate")
    forwarder("topics", "create")
    forwarder("workspace", "add", "trace")
    pms = ("--kind", "generic", "--base-url", f"{pms_url}/traced/generic")
    forwarder("account", "add", "--workspace", "trace", "--id", "traced", *pms, "--credential", "secret")
    token: str = json.loads(forwarder("key", "add", "--workspace", "trace", "--json"))["token"]
    return token


def reservation(number: int) -> Mapping[str, Any]:
    """One that the simulated PMS confirms."""
    return {
        "propertyId": 1000 + number,
        "roomId": "1",
        "arrivalDate": "2031-03-01",
        "departureDate": "2031-03-05",
        "morChannel": "SELF",
        "guest": {
            "name": "Maria Gonzalez",
            "firstName": "Maria",
            "lastName": "Gonzalez",
            "email": "maria@example.com",
            "address": {
                "line1": "Rua da Prata 1",
                "line2": "",
                "city": "Lisboa",
                "state": "",
                "postalCode": "1100-100",
                "country": "PT",
            },
        },
        "numberOfGuests": 2,
        "totalPrice": 480.5,
        "currency": "EUR",
        "transactionId": f"trace-{number}",
    }


def observe(stage: Stage, act: Callable[[int], None]) -> tuple[str, ...]:
    """The files that run in `stage` for one `act`."""
    for number in range(3):
        act(number)
    time.sleep(2 * WINDOW_SECONDS)
    stage.ask("clear")
    time.sleep(IDLE_WINDOWS * WINDOW_SECONDS)
    idle = stage.ask("tell")
    seen: Counter[Pair] = Counter()
    for number in range(3, 3 + MESSAGES):
        stage.ask("clear")
        act(number)
        time.sleep(WINDOW_SECONDS)
        seen.update(stage.ask("tell") - idle)
    return tuple(sorted({file for (_, file, _), times in seen.items() if times >= NEARLY_ALL}))


def main() -> None:
    with site() as (stages, headers), httpx.Client(headers=headers) as http:
        address = "/api/v1/vrs/reservations"

        def post(number: int) -> None:
            response = http.post(f"{stages['ingress'].url}{address}/booking-engine", json=reservation(number))
            assert response.status_code == httpx.codes.ACCEPTED, response.text

        def page(_number: int) -> None:
            response = http.get(f"{stages['query'].url}{address}", params={"limit": 10})
            assert response.status_code == httpx.codes.OK, response.text
            assert response.json()["data"]

        def deliver(number: int) -> None:
            post(MESSAGES + 10 + number)

        for title, stage, act in (("POST", "ingress", post), ("delivery", "worker", deliver), ("page", "query", page)):
            files = observe(stages[stage], act)
            print(f"{title} {len(files)}", *(f"  forwarder/{file}" for file in files), sep="\n", flush=True)
        confirmed = http.get(f"{stages['query'].url}{address}", params={"limit": 200, "status": "CONFIRMED"}).json()
        assert len(confirmed["data"]) == 2 * (MESSAGES + 3), "not every reservation was confirmed"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run_stage(sys.argv[1:])
    else:
        main()
