"""The published contract of the open PMS, and that both sides keep to it."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate

from tests.support.simulator.client import GENERIC, PAYING_CARD, ROOM, STAY, SimulatorClient, simulated
from tools.contracts.pms_contract import open_pms_contract


@pytest.fixture
async def client() -> AsyncIterator[SimulatorClient]:
    async with simulated() as opened:
        yield opened


def test_the_contract_is_openapi_and_published_as_it_is() -> None:
    contract = open_pms_contract()
    validate(contract)
    published = Path(__file__).resolve().parents[4] / "schemas" / "pms-openapi.json"
    assert published.read_text() == json.dumps(contract, indent=2, ensure_ascii=False) + "\n"


async def test_the_simulator_keeps_to_the_contract(client: SimulatorClient) -> None:
    paths = open_pms_contract()["paths"]
    operations = paths["/reservations"] | paths["/reservations/{id}"]
    answers = [
        ("post", await client.book()),
        ("post", await client.book()),
        ("post", await client.book("R3", roomId="C", cardDetails=PAYING_CARD)),
        ("post", await client.book("R2")),
        ("post", await client.book(totalPrice=3)),
        ("post", await client.book("R4", propertyId="unknown")),
        ("post", await client.http.post(GENERIC, content=b"{")),
        ("get", await client.http.get(GENERIC, params={"reference": "R1"})),
        ("delete", await client.http.delete(f"{GENERIC}/1001")),
        ("delete", await client.http.delete(f"{GENERIC}/1001")),
        ("get", await client.http.get(GENERIC, params={"reference": "R1"})),
        ("delete", await client.http.delete(f"{GENERIC}/9999")),
        ("delete", await client.http.delete(f"{GENERIC}/nonsense")),
    ]
    statuses = [answer.status_code for _, answer in answers]
    assert statuses == [201, 200, 201, 409, 422, 404, 400, 200, 204, 204, 200, 404, 404]
    assert answers[10][1].json()["data"][0]["status"] == "CANCELLED"
    for method, answer in answers:
        _matches(operations[method]["responses"][str(answer.status_code)], answer)
    for mode in ("down", "throttle"):
        await client.go_wrong(mode=mode, retry_after=1)
        answer = await client.book()
        assert str(answer.status_code) in operations["post"]["responses"]
        assert answer.headers["retry-after"] == "1"


def _matches(response: dict[str, Any], answer: httpx.Response) -> None:
    if "content" not in response:
        assert not answer.content
        return
    media_type = answer.headers["content-type"]
    schema = {**response["content"][media_type]["schema"], "components": open_pms_contract()["components"]}
    OAS31Validator(schema).validate(answer.json())


def test_what_we_send_keeps_to_the_contract() -> None:
    contract = open_pms_contract()
    schema = {"$ref": "#/components/schemas/ReservationRequest", "components": contract["components"]}
    engine = {**STAY, "reference": "R1", "morChannel": "PMS", "paymentProviderId": 42, "cardDetails": PAYING_CARD}
    general = {**ROOM, "reference": "R1", "guest": {"phone": 34600111222}, "propertyId": "00123"}
    for body in (engine, general):
        OAS31Validator(schema).validate(body)
    assert not OAS31Validator(schema).is_valid({**general, "propertyId": True})
    assert not OAS31Validator(schema).is_valid({"reference": "R1"})
