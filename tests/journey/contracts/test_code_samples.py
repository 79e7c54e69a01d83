"""The samples that the contract shows, run as they stand, in all three languages, where `forwarder up` says whom to call."""

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.backends import only
from tests.support.deployment.deployment import Deployment
from tools.contracts.openapi import openapi

_PROGRAMS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "curl": ("bash", ("-c",)),
    "Python": (sys.executable, ("-c",)),
    "JavaScript": ("node", ("--input-type=module", "-e")),
}
_SECONDS = 120


@only("embedded")
@pytest.mark.slow
@pytest.mark.parametrize("language", _PROGRAMS)
async def test_the_samples_do_what_they_show(deployment: Deployment, language: str) -> None:
    program, arguments = _PROGRAMS[language]
    for needed in (program, "curl"):
        if shutil.which(needed) is None:
            pytest.skip(f"no {needed} in PATH")
    await deployment.add_account("demo-generic")
    said = {
        name: await _run(deployment, program, (*arguments, _sample(name, language)))
        for name in ("submitReservation", "submitBookingEngineReservation", "submitReservations", "listReservationsV1")
    }
    assert all('success":true' in each or '"data":[' in each for each in said.values()), said
    assert "requestId" in said["submitReservation"], said
    refused = await _run(deployment, program, (*arguments, _sample("getReservation", language)))
    assert "reservation_not_found" in refused, "its answer is shown"


def _sample(operation_id: str, language: str) -> str:
    operations = (one for methods in openapi()["paths"].values() for one in methods.values())
    (operation,) = [one for one in operations if one["operationId"] == operation_id]
    (sample,) = [one["source"] for one in operation["x-codeSamples"] if one["label"] == language]
    if language != "JavaScript":
        return str(sample)
    return str(sample).replace("await response.json()", "JSON.stringify(await response.json())")


async def _run(deployment: Deployment, program: str, arguments: tuple[str, ...]) -> str:
    """What it prints, without blanks and with JSON's quotes."""
    known = {
        "PATH": os.environ["PATH"],
        "FORWARDER_URL": deployment.url("up"),
        "FORWARDER_TOKEN": deployment.token,
        "FORWARDER_WORKSPACE": "demo",
    }
    process = await asyncio.create_subprocess_exec(
        program, *arguments, env=known, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=Path("/")
    )
    out, err = await asyncio.wait_for(process.communicate(), _SECONDS)
    assert process.returncode == 0, err.decode()
    return out.decode().replace(" ", "").replace("'", '"').replace("True", "true")
