"""Webhooks as a receiver verifies them with the client. What is verified was signed by the public library."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from standardwebhooks import Webhook

from forwarder.reservation.outcome import Status
from forwarder.webhooks.port import new_secret, signed_headers
from reservation_forwarder_client import WebhookInvalid, verify_webhook
from tests.support.cases import for_each
from tools.contracts import examples

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER = "whsec_" + base64.b64encode(bytes(range(1, 33))).decode()
SENT = datetime(2027, 1, 15, 9, 30, 1, tzinfo=UTC)
NOW = SENT.timestamp()
EVENT: dict[str, Any] = {
    "type": "reservation.confirmed.v1",
    "timestamp": examples.SETTLED_AT,
    "data": {
        "requestId": examples.request_id(),
        "status": "CONFIRMED",
        "reservation": examples.record(Status.CONFIRMED),
    },
    "added": "later",
}
BODY = json.dumps(EVENT)


def signed(secret: str = SECRET, body: str = BODY, **headers: str) -> dict[str, str]:
    return {
        "Webhook-Id": "evt.1",
        "Webhook-Timestamp": str(int(NOW)),
        "Webhook-Signature": Webhook(secret).sign("evt.1", SENT, body),
        **headers,
    }


def test_what_was_signed_is_verified_and_read() -> None:
    event = verify_webhook(BODY.encode(), signed(), SECRET, now=NOW)
    assert (event.id, event.type) == ("evt.1", "reservation.confirmed.v1")
    assert event.timestamp == datetime(2027, 1, 15, 9, 30, 0, 412_000, tzinfo=UTC)
    assert event.data["requestId"] == examples.request_id()
    assert event.reservation is not None
    assert event.reservation.pms_reservation_id == examples.PMS_ID


def test_what_the_service_signs_is_verified_while_a_secret_is_replaced() -> None:
    new, old = new_secret(), new_secret()
    headers = signed_headers([new, old], message_id="evt.1", timestamp=int(NOW), body=BODY.encode())
    for secret in (new, old):
        assert verify_webhook(BODY.encode(), headers, secret, now=NOW).id == "evt.1"


@pytest.mark.parametrize("secrets", [[SECRET], [OTHER, SECRET], (SECRET, OTHER)])
def test_one_of_several_secrets_will_do(secrets: list[str]) -> None:
    assert verify_webhook(BODY.encode(), signed(), secrets, now=NOW).id == "evt.1"


def test_one_of_several_signatures_will_do() -> None:
    both = f"v1a,whatever {signed(OTHER)['Webhook-Signature']} {signed()['Webhook-Signature']}"
    assert verify_webhook(BODY.encode(), signed(**{"Webhook-Signature": both}), SECRET, now=NOW).id == "evt.1"


@for_each(
    ("changed", "said"),
    [
        ({"Webhook-Signature": signed(OTHER)["Webhook-Signature"]}, "no signature"),
        ({"Webhook-Signature": signed()["Webhook-Signature"].replace("v1,", "v2,")}, "no signature"),
        ({"Webhook-Signature": ""}, "no signature"),
        ({"Webhook-Signature": "v1,é"}, "no signature"),
        ({"Webhook-Id": "evt.2"}, "no signature"),
        ({"Webhook-Timestamp": str(int(NOW) + 1)}, "no signature"),
        ({"Webhook-Timestamp": "now"}, "no signature"),
    ],
)
def test_what_was_changed_on_the_way_is_not(changed: dict[str, str], said: str) -> None:
    with pytest.raises(WebhookInvalid, match=said):
        verify_webhook(BODY.encode(), signed(**changed), SECRET, now=NOW)


def test_another_body_is_not() -> None:
    with pytest.raises(WebhookInvalid, match="no signature"):
        verify_webhook(BODY.replace("CONFIRMED", "REJECTED").encode(), signed(), SECRET, now=NOW)


@for_each(
    ("late", "tolerance", "taken"),
    [(299, 300, True), (301, 300, False), (-301, 300, False), (50, 60, True), (61, 60, False)],
)
def test_an_old_delivery_is_not(late: float, tolerance: float, taken: bool) -> None:
    def verify() -> None:
        verify_webhook(BODY.encode(), signed(), SECRET, tolerance_seconds=tolerance, now=NOW + late)

    if taken:
        verify()
    else:
        with pytest.raises(WebhookInvalid, match="just now"):
            verify()


@pytest.mark.parametrize("missing", ["Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"])
def test_a_delivery_without_a_header_is_not(missing: str) -> None:
    headers = signed()
    del headers[missing]
    with pytest.raises(WebhookInvalid, match=missing.lower()):
        verify_webhook(BODY.encode(), headers, SECRET, now=NOW)


@for_each("body", ["", "[]", "{}", '{"type": "x", "timestamp": "today", "data": {}}', '{"type": 7}'])
def test_a_body_that_is_no_event_is_not(body: str) -> None:
    with pytest.raises(WebhookInvalid, match="contract"):
        verify_webhook(body.encode(), signed(body=body), SECRET, now=NOW)


@pytest.mark.parametrize("secrets", ["whsec_", "whsec_not base64!", "", ["whsec_"]])
def test_a_secret_that_is_none_is_the_receivers_mistake(secrets: str) -> None:
    with pytest.raises(ValueError, match="secret"):
        verify_webhook(BODY.encode(), signed(), secrets, now=NOW)


def test_no_secret_at_all_verifies_nothing() -> None:
    with pytest.raises(WebhookInvalid):
        verify_webhook(BODY.encode(), signed(), [], now=NOW)


def test_an_event_of_another_kind_has_no_reservation() -> None:
    body = json.dumps({**EVENT, "type": "webhook.test.v1", "data": {"endpointId": "whk_1"}})
    assert verify_webhook(body.encode(), signed(body=body), SECRET, now=NOW).reservation is None
