"""How deliveries are signed, judged by the public library, and when they are tried again."""

import base64
import json
from datetime import UTC, datetime, timedelta

import pytest
from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from forwarder.notifier.posting import PAUSES, RETRY_FOR, body_of, decode_event, next_try
from forwarder.topics.codec import Undecodable
from forwarder.topics.port import Message
from forwarder.webhooks.port import key_of, new_secret, public_key, signed_headers
from tests.support.cases import for_each
from tools.contracts.messages import request_messages, result_messages

NOW = datetime(2027, 1, 1, tzinfo=UTC)
BODY = '{"type":"t","data":{"name":"Zoë"}}'.encode()


def headers(*secrets: str, body: bytes = BODY, asymmetric: bool = False) -> dict[str, str]:
    now = int(datetime.now(UTC).timestamp())
    return signed_headers(secrets, message_id="rsv_1.1", timestamp=now, body=body, asymmetric=asymmetric)


def test_a_secret_is_as_standard_webhooks_has_it() -> None:
    prefix, _, key = new_secret().partition("_")
    assert prefix == "whsec"
    assert 24 <= len(base64.b64decode(key, validate=True)) <= 64
    assert new_secret() != new_secret()


def test_the_public_library_accepts_what_was_signed() -> None:
    secret = new_secret()
    assert Webhook(secret).verify(BODY, headers(secret)) == json.loads(BODY)


def test_the_public_key_verifies_a_signature_of_its_own() -> None:
    old, new = new_secret(), new_secret()
    signed = headers(new, old, asymmetric=True)
    content = f"{signed['webhook-id']}.{signed['webhook-timestamp']}.".encode() + BODY
    given = [one.partition(",") for one in signed["webhook-signature"].split()]
    assert [version for version, _, _ in given] == ["v1", "v1", "v1a", "v1a"]
    assert "v1a" not in headers(new, old)["webhook-signature"]
    for secret, (_, _, value) in zip((new, old), given[2:], strict=True):
        prefix, _, key = public_key(secret).partition("_")
        assert prefix == "whpk"
        VerifyKey(base64.b64decode(key)).verify(content, base64.b64decode(value))
        with pytest.raises(BadSignatureError):
            VerifyKey(base64.b64decode(key)).verify(content + b" ", base64.b64decode(value))


@pytest.mark.parametrize("given", ["whsec_", "whsec_c2hvcnQ=", "whsec_%%%", base64.b64encode(b"x" * 32).decode()])
def test_what_is_no_secret_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match=r"secret|base64|Non-base64|padding"):
        key_of(given)


@pytest.mark.parametrize("tampered", ["body", "id", "timestamp", "secret"])
def test_it_refuses_what_was_changed(tampered: str) -> None:
    secret = new_secret()
    signed, body = headers(secret), BODY
    match tampered:
        case "body":
            body = BODY.replace(b"Zo", b"Jo")
        case "id":
            signed["webhook-id"] = "rsv_1.2"
        case "timestamp":
            signed["webhook-timestamp"] = str(int(signed["webhook-timestamp"]) + 1)
        case _:
            secret = new_secret()
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(body, signed)


def test_while_a_secret_rotates_either_one_is_accepted() -> None:
    old, new = new_secret(), new_secret()
    signed = headers(new, old)
    assert signed["webhook-signature"].count("v1,") == 2
    for secret in (old, new):
        assert Webhook(secret).verify(BODY, signed)


# --- what is posted -------------------------------------------------------------------------------------------------------


@for_each("described", result_messages(), ids=lambda each: each.kind)
def test_every_result_event_is_posted_as_it_is(described: object) -> None:
    message: Message = described.example  # type: ignore[attr-defined]
    told = {name: value.decode() for name, value in message.headers}
    event = decode_event(message)
    assert (event.id, event.type) == (told["ce_id"], told["ce_type"])
    data = json.loads(message.value)
    assert event.workspace_id == data["workspaceId"]
    assert json.loads(event.body) == {"type": told["ce_type"], "timestamp": told["ce_time"], "data": data}
    assert "cardNumber" not in event.body


@for_each(
    ("value", "headers_kept"),
    [(b"{", True), (b"[]", True), (b"{}", True), (b'{"workspaceId":1}', True), (b'{"workspaceId":"ws"}', False)],
)
def test_what_is_no_event_is_told_apart(value: bytes, headers_kept: bool) -> None:
    (_, cancellation) = request_messages()
    with pytest.raises(Undecodable):
        decode_event(Message(b"k", value, cancellation.example.headers if headers_kept else ()))


def test_a_body_is_json_whatever_the_type_holds() -> None:
    assert json.loads(body_of('a"b', "now", "[1]")) == {"type": 'a"b', "timestamp": "now", "data": [1]}


# --- when it is tried again -------------------------------------------------------------------------------------------------


def again(
    tried: int, *, age: timedelta = timedelta(0), asked: float | None = None, jitter: float = 0.5
) -> timedelta | None:
    due = next_try(tried, retrying_since=NOW - age, now=NOW, retry_after_seconds=asked, jitter=jitter)
    return None if due is None else due - NOW


def test_the_pauses_grow_and_are_jittered_around_their_figures() -> None:
    assert [again(tried) for tried in range(1, len(PAUSES))] == list(PAUSES[:-1])
    assert again(20) == PAUSES[-1]
    assert again(3, jitter=0.0) == timedelta(seconds=1)
    assert again(3, jitter=0.999) == 2 * 0.999 * PAUSES[2]
    assert tuple(sorted(PAUSES)) == PAUSES


def test_it_is_tried_for_three_days() -> None:
    assert timedelta(days=3) == RETRY_FOR
    assert again(9, age=RETRY_FOR - timedelta(hours=1)) == timedelta(hours=1)
    assert again(9, age=RETRY_FOR) is None
    tries, age = 0, timedelta(0)
    while (pause := again(tries + 1, age=age)) is not None:
        tries, age = tries + 1, age + pause
    assert age == RETRY_FOR
    assert 8 <= tries <= 12


def test_what_an_endpoint_asks_for_is_waited_for() -> None:
    assert again(1, asked=60.0) == timedelta(seconds=60)
    assert again(3, asked=60.0) == PAUSES[2]
    assert again(1, asked=-5.0) == PAUSES[0]
    assert again(1, asked=1e9) == RETRY_FOR
