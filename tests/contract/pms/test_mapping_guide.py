"""The PMS of the guide on mappings, spoken to by the very text of the guide: it passes the conformance kit."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from forwarder.http.server import serve
from forwarder.pms.kinds.generic import GENERIC
from forwarder.pms.mapping.document import load_document
from forwarder.pms.mapping.model import PmsMapping
from forwarder.process.clock import SystemClock
from forwarder.process.supervision import Stop, bind
from forwarder.simulator.world import World
from forwarder_pms_kit.command import after_checks
from forwarder_pms_kit.conformance import CHECKS, Site, examine
from tests.contract.pms.harbour import harbour_app

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "map-a-pms.md"
WAITING = {"keeps-its-time", "leaves-nothing-open"}


def harbour() -> str:
    (document,) = re.findall(r"```yaml\n(title: Harbour\n.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    return str(document)


@asynccontextmanager
async def harbour_site() -> AsyncIterator[Site]:
    with World(SystemClock()) as world:
        listening, stop = bind("127.0.0.1", 0), Stop()
        serving = asyncio.create_task(serve(harbour_app(world), listening, stop, grace_seconds=1.0))
        try:
            yield Site(
                f"http://127.0.0.1:{listening.getsockname()[1]}/acme/harbour/v2",
                "4711:a-client-secret",
                {"mapping": harbour()},
                held=world.standing,
                refusals={
                    "property_not_found": {"propertyId": "unknown", "roomId": "unknown"},
                    "guest_refused": {"guest": {"name": "Maria Gonzalez", "email": "maria@refused.example"}},
                },
            )
        finally:
            stop.set()
            await serving
            listening.close()


async def test_the_mapping_of_the_guide_keeps_its_word() -> None:
    async with harbour_site() as site:
        checks = [check for check in CHECKS if str(check) not in WAITING]
        results = [result async for result in examine("generic", GENERIC, site, checks)]
    assert [(result.check.name, result.findings) for result in results if result.verdict == "failed"] == []
    verdicts = {result.check.name: result.verdict for result in results}
    assert {name for name, verdict in verdicts.items() if verdict != "passed"} == {
        "creates-idempotently",
        "creates-batches",
        "habit-keys-end",
    }
    lines = [*after_checks(load_document(harbour(), PmsMapping), verdicts, "here")]
    assert lines[0] == "evidence:"
    assert "create.body.price_cents" in lines[1]
    assert "find.pages" in lines[1]
    assert not [line for line in lines if "contradicted" in line]
    assert "create.errors.0" in lines[1]  # the one for taken nights, which were asked for
    assert "  # still unknown: create.errors.1" in lines


def test_what_a_run_contradicts_or_does_not_reach_is_said() -> None:
    mapping = load_document(harbour(), PmsMapping)
    lines = [*after_checks(mapping, {"makes-reservations": "passed", "cancels": "failed"}, "here")]
    assert any("contradicted, or not reached: cancel.path" in line for line in lines)
    assert any("still unknown: find.path" in line for line in lines)
