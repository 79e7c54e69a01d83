"""schemas/events and the published asyncapi.yaml: valid, whole, and what is on the topics."""

import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator, ValidationError

from forwarder.reservation.outcome import Status
from forwarder.topics.port import Message
from tests.support.contracts.asyncapi_parser import parse
from tests.support.contracts.message_contract import check_message, check_value
from tests.support.stages.bodies import BOOKING_ENGINE, GENERAL
from tests.support.stages.http_stages import BOOKING_ENGINE_PATH, GENERAL_PATH, RESULTS, Stages, stages
from tools.contracts.asyncapi import asyncapi, event_schemas
from tools.contracts.messages import other_messages, request_messages, result_messages
from tools.servers.ladder import Unavailable

ROOT = Path(__file__).resolve().parents[3]
SCHEMAS = ROOT / "schemas"
PUBLISHED = ROOT / "forwarder" / "http" / "published"
CARD = {"cardNumber": "4242424242424242", "cvv": "123"}
TRACE = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}


@pytest.fixture(scope="module")
def published() -> str:
    return (PUBLISHED / "asyncapi.yaml").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_official_parser_takes_the_document(published: str) -> None:
    try:
        verdict = parse(published)
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert verdict.understood, verdict.faults
    assert verdict.faults == []


@pytest.mark.slow
def test_the_official_parser_would_have_found_a_fault(published: str) -> None:
    broken = yaml.safe_load(published)
    broken["operations"]["announceResult"]["action"] = "publish"
    try:
        verdict = parse(json.dumps(broken))
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert not verdict.understood
    assert verdict.faults


def test_the_yaml_says_what_the_document_says(published: str) -> None:
    assert yaml.safe_load(published) == json.loads(json.dumps(asyncapi()))


def test_there_is_a_valid_schema_for_every_type() -> None:
    types = {one.kind for one in (*request_messages(), *result_messages(), *other_messages())}
    assert set(event_schemas()) == types
    assert {path.name for path in (SCHEMAS / "events").iterdir()} == {f"{kind}.schema.json" for kind in types}
    for schema in event_schemas().values():
        Draft202012Validator.check_schema(schema)
    listed = {name for channel in asyncapi()["channels"].values() for name in channel["messages"]}
    assert listed == types | {"deadLetter"}


def test_the_examples_are_what_they_are_examples_of() -> None:
    paths = list((SCHEMAS / "examples" / "messages").iterdir())
    assert len(paths) == len(event_schemas())
    for path in paths:
        example = json.loads(path.read_text(encoding="utf-8"))
        headers = tuple((name, value.encode()) for name, value in example["headers"].items())
        message = Message(example["key"].encode(), json.dumps(example["value"]).encode(), headers)
        assert check_message(message) == path.stem


def test_a_schema_refuses_what_is_no_such_event() -> None:
    confirmed = json.loads((SCHEMAS / "examples" / "messages" / "reservation.confirmed.v1.json").read_text())["value"]
    check_value("reservation.confirmed.v1", confirmed)
    wrong = [
        {**confirmed, "status": "REJECTED"},
        {**confirmed, "more": 1},
        {name: value for name, value in confirmed.items() if name != "requestId"},
        {**confirmed, "reservation": {**confirmed["reservation"], "id": "1"}},
    ]
    for value in wrong:
        with pytest.raises(ValidationError):
            check_value("reservation.confirmed.v1", value)
    with pytest.raises(ValidationError):
        check_value("reservation.cancellation_refused.v1", confirmed)


async def test_what_the_ingress_publishes_is_as_published() -> None:
    house: Stages
    async with stages() as house:
        at_once = {"Prefer": "respond-async", "Forward-Deadline": "60", **TRACE}
        bodies = [(BOOKING_ENGINE_PATH, {**BOOKING_ENGINE, "cardDetails": CARD}), (GENERAL_PATH, GENERAL)]
        for path, body in bodies:
            assert (await house.client.post(path, json=body, headers=at_once)).status_code == 202
        submitted = house.requests[0]
        accepted = await house.client.post(f"{GENERAL_PATH}/{dict(submitted.headers)['ce_subject'].decode()}/cancel")
        assert accepted.status_code == 202
        kinds = [check_message(message) for message in house.requests]
        await house.settle(submitted, Status.CONFIRMED, pms_reservation_id="P1")
        kinds += [check_message(message) for message in house.log.topics[RESULTS]]
    assert kinds == [
        *["reservation.submitted.v1"] * 2,
        "reservation.cancellation_requested.v1",
        "reservation.confirmed.v1",
    ]
