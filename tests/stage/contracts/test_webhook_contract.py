"""What the contract says of what is posted to a webhook, held against what is: events, bodies, headers."""

from typing import Any

import pytest
from jsonschema import ValidationError
from pydantic_core import from_json

from forwarder.notifier.posting import TEST_EVENT, decode_event
from forwarder.notifier.webhooks import Webhooks
from forwarder.reservation.record import RESULT_TYPES
from forwarder.webhooks.port import new_secret, signed_headers
from tests.support.cases import for_each
from tests.support.contracts.http_contract import HttpContract
from tests.support.memory.audit import memory_audit
from tests.support.memory.clock import ManualClock
from tests.support.memory.named_hosts import named_hosts
from tests.support.memory.webhooks import MemoryDeliveries, MemoryEndpoints
from tests.support.sealing import keyring_of
from tools.contracts.messages import result_messages
from tools.contracts.openapi import openapi

CONTRACT = HttpContract()


def described(kind: str) -> dict[str, Any]:
    operation: dict[str, Any] = openapi()["webhooks"][kind]["post"]
    return operation


def schema(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = described(kind)["requestBody"]["content"]["application/json"]["schema"]
    return found


def test_every_event_is_there_and_no_other() -> None:
    assert list(openapi()["webhooks"]) == [*RESULT_TYPES, TEST_EVENT]


@for_each("one", result_messages(), ids=lambda one: one.kind)
def test_a_result_is_posted_as_described(one: Any) -> None:
    body = from_json(decode_event(one.example).body)
    CONTRACT.validate(schema(one.kind), body)
    another = next(kind for kind in RESULT_TYPES if kind != one.kind)
    with pytest.raises(ValidationError, match="was expected"):
        CONTRACT.validate(schema(one.kind), {**body, "type": another})


async def test_a_test_is_posted_as_described() -> None:
    endpoints, deliveries = MemoryEndpoints("alpha"), MemoryDeliveries()
    hooks = Webhooks(
        endpoints,
        deliveries,
        keyring_of("a secret"),
        named_hosts(),
        ManualClock(),
        memory_audit(ManualClock()),
    )
    endpoint, _ = await hooks.add("alpha", "https://hooks.example/in")
    number = await hooks.test(endpoint.id, workspace_id="alpha")
    CONTRACT.validate(schema(TEST_EVENT), from_json(deliveries.kept[number].body))


def test_its_signature_is_in_the_headers_that_are_named() -> None:
    sent = signed_headers([new_secret()], message_id="rsv_x.1", timestamp=1_800_000_000, body=b"{}")
    for kind in openapi()["webhooks"]:
        named = {one["name"]: one for one in described(kind)["parameters"]}
        assert {name for name, one in named.items() if one["required"]} == sent.keys()
        assert named.keys() - sent.keys() == {"traceparent", "tracestate"}
        assert all(one["in"] == "header" for one in named.values())
