"""The HTTP contract against a running forwarder: thousands of requests that keep to it and break it, by schemathesis."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.backends import Backend
from tests.support.deployment.deployment import Deployment, Site, booking, deploy

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 240
# JSON Schema cannot say that one day is after another, nor how many decimals a currency has. `schemathesis_checks` sees to it that
# a 400 or 422 is about nothing else.
ALSO_EXPECTED = ["2xx", "304", "400", "404", "409", "422"]
# As a reservation's {id}, "booking-engine" is one that is not there: GET of this path is answered 404, not 405.
ALSO_AN_ID = "/api/v1/vrs/reservations/booking-engine"
# The same; and what is wrong with an item of a bulk is said in a 200, item by item.
A_BULK = "/api/v1/vrs/reservations/bulk"
# Where the stages are processes of their own, each names in `Allow` the methods that it has; a proxy puts them together.
OF_TWO_STAGES = "/api/v1/vrs/reservations"


@pytest.fixture
def site(site: Site) -> Site:
    """Nobody waits long for an outcome, and webhooks may lead to this machine."""
    short = {"FORWARDER_WAIT_SECONDS": "1", "FORWARDER_MAX_WAIT_SECONDS": "1", "FORWARDER_LOG_LEVEL": "info"}
    short["FORWARDER_WEBHOOK_PRIVATE_ADDRESSES"] = "true"
    return Site(site.backend, site.directory, {**site.settings, **short}, site.reaper)


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS)
async def test_schemathesis_finds_nothing(site: Site, backend: Backend, tmp_path: Path) -> None:
    async with deploy(site) as deployment:
        await deployment.add_account("generic")
        accepted = (await deployment.submit("generic", booking(1))).json()["data"]
        settled = await deployment.settled("generic", accepted["requestId"])
        parts = [("ingress", ["Submitting", "About"]), ("query", ["Reading"]), ("notifier", ["Webhooks"])]
        if backend == "embedded":
            parts = [("up", ["Submitting", "Reading", "About", "Webhooks"])]
        else:
            deployment.add("notifier")
            await deployment.start()
        for role, tags in parts:
            config = _config(
                tmp_path / f"{role}.toml", settled, deployment.headers("generic"), whole=backend == "embedded"
            )
            report = await asyncio.to_thread(_run, deployment, role, config, tags)
            cases = re.search(r"(\d+) generated", report)
            assert cases is not None, report
            assert int(cases[1]) > 50
            print(f"{role} on {backend}: {cases[1]} cases, no failure")
        for role in deployment.roles:
            assert "request.failed" not in deployment.log(role).read_text()


def _config(path: Path, known: Mapping[str, Any], headers: Mapping[str, str], *, whole: bool) -> Path:
    """`known`: a submission that there is; `headers`: of one who calls; `whole`: one process has all stages. Checks are on unless
    they are named here."""
    path.write_text(f"""
[generation]
allow-extra-parameters = false

[checks.positive_data_acceptance]
expected-statuses = {json.dumps(ALSO_EXPECTED)}

[checks.negative_data_rejection]
expected-statuses = ["400", "401", "403", "404", "405", "406", "409", "413", "415", "422", "428", "429", "5xx"]

[parameters]
"path.request_id" = {json.dumps(known["requestId"])}
"header.workspaceId" = {json.dumps(headers["workspaceId"])}
"header.integrationAccountId" = {json.dumps(headers["integrationAccountId"])}

[[operations]]
include-path = "{ALSO_AN_ID}"
checks.unsupported_method.enabled = false
checks.allow_header_conformance.enabled = false

[[operations]]
include-path = "{A_BULK}"
checks.unsupported_method.enabled = false
checks.allow_header_conformance.enabled = false
checks.negative_data_rejection.enabled = false

[[operations]]
include-path = "{OF_TWO_STAGES}"
checks.allow_header_conformance.enabled = {"true" if whole else "false"}
""")
    return path


def _run(deployment: Deployment, role: str, config: Path, tags: Sequence[str]) -> str:
    """What schemathesis prints. Fails with it where it found something."""
    authorization = deployment.headers("generic")["Authorization"]
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "schemathesis.cli",
                "--config-file",
                config,
                "run",
                ROOT / "schemas" / "openapi.json",
            ),
            *("--url", deployment.url(role), "--seed", "1", "--max-examples", "5", "--no-color"),
            *("--request-timeout", "20", "--continue-on-failure"),
            *(part for tag in tags for part in ("--include-tag", tag)),
            *("--header", f"Authorization: {authorization}"),
        ],
        cwd=config.parent,
        env={
            **os.environ,
            "SCHEMATHESIS_HOOKS": "tests.support.contracts.schemathesis_checks",
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
    return done.stdout
