"""Kinds that were code before they were pages send what the code sent, byte for byte: the code wrote `golden_requests.json`."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from forwarder.pms.http.client import Request
from forwarder.pms.http.response import Response
from forwarder.pms.port import AccountConnection
from forwarder.pms.registry import KINDS
from forwarder.reservation.booking import Booking
from tests.support.cases import for_each
from tests.support.memory.clock import ManualClock

GOLDEN = json.loads(Path(__file__).with_name("golden_requests.json").read_text(encoding="utf-8"))
ANSWERS: dict[tuple[str, str], object] = {
    ("hostaway", "POST"): {"status": "success", "result": {"id": 81, "status": "new"}},
    ("hostaway", "GET"): {"status": "success", "result": [], "count": 0},
    ("hostaway", "PUT"): {"status": "success", "result": {"id": 81, "status": "cancelled"}},
    ("beds24", "POST"): [{"success": True, "new": {"id": 81}}],
    ("beds24", "GET"): {"success": True, "pages": {"nextPageExists": False}, "data": []},
    ("cloudbeds", "POST"): {"success": True, "reservationID": "81", "status": "confirmed"},
    ("cloudbeds", "GET"): {"success": True, "data": [], "total": 0},
    ("cloudbeds", "PUT"): {"success": True},
}


@for_each("golden", GOLDEN, ids=lambda one: f"{one['kind']}-{one['reference'][-3:]}")
async def test_the_requests_are_those_of_the_code(golden: dict[str, Any]) -> None:
    kind, sent = golden["kind"], []

    async def send(request: Request) -> Response:
        sent.append([request.method, request.url, request.query, request.content.decode()])
        return Response(200, (), json.dumps(ANSWERS[kind, request.method]).encode())

    connection = AccountConnection("a", kind, "https://pms.test/v1", "credential", options=golden["options"])
    adapter = KINDS[kind](connection, ManualClock(datetime(2027, 1, 1, tzinfo=UTC)))
    asked = Booking(golden["reference"], golden["fields"], None)
    await adapter.create(asked, send)
    await adapter.find(asked, send)
    await adapter.cancel(asked, "81", send)
    assert sent == golden["requests"]
