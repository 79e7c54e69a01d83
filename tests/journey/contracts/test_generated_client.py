"""A client generated from the published contract compiles, books, reads and cancels."""

import asyncio
import compileall
import json
from pathlib import Path

import pytest

from tests.support.contracts.generated_client import generate, run
from tests.support.deployment.deployment import Deployment
from tools.servers.ladder import Unavailable

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "tests" / "support" / "contracts" / "openapi_client" / "book.py"


@pytest.mark.slow
async def test_a_generated_client_books(deployment: Deployment, tmp_path: Path) -> None:
    try:
        package = await asyncio.to_thread(generate, ROOT / "schemas" / "openapi.json", tmp_path)
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert compileall.compile_dir(package, quiet=1)
    addresses = [deployment.url("ingress"), deployment.url("query")]
    printed = await asyncio.to_thread(run, SCRIPT, package, [*addresses, deployment.token, "demo", "generic"])
    said = json.loads(printed)
    assert said["attempts"] == ["confirmed"]
    assert said["problem"] == "property_not_found"
    assert said["statuses"] == ["CANCELLED", "CONFIRMED", "REJECTED"]
    assert said["cancelledAt"]
    assert (await deployment.made())["duplicates"]["surplus"] == 0
