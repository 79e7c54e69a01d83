"""Cards: sealed before anything leaves the ingress, masked wherever they show, the CVV nowhere."""

import gc
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import structlog

from forwarder.reservation.checks.card_numbers import masked
from forwarder.reservation.request import CardDetails
from forwarder.topics.codec import decode_submission
from tests.support.cases import for_each
from tests.support.stages.asgi_call import AsgiCall
from tests.support.stages.bodies import BOOKING_ENGINE, CARD, GENERAL
from tests.support.stages.http_stages import BOOKING_ENGINE_PATH, GENERAL_PATH, HEADERS, Stages, stages

SECRETS = ("4111 1111 1111 1111", "4111111111111111", "987", "ANA R HOLDER", "2031")


def _secrets_in(shown: str) -> list[str]:
    """Those that stand in it by themselves: random identifiers and signatures may have the digits of a code by chance."""
    return [each for each in SECRETS if re.search(rf"(?<![0-9A-Za-z]){re.escape(each)}(?![0-9A-Za-z])", shown)]


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    async with stages() as built:
        yield built


async def _publish(house: Stages, card: Any) -> dict[str, Any]:
    answer = await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE | {"cardDetails": card})
    assert answer.status_code == 202, answer.text
    return house.published()


async def test_the_message_shows_the_masked_number_alone(house: Stages) -> None:
    published = await _publish(house, CARD)
    assert published["reservation"] == BOOKING_ENGINE | {"cardDetails": {"cardNumber": "411111******1111"}}


async def test_nothing_of_the_card_is_readable_in_message_answer_or_log(house: Stages) -> None:
    with structlog.testing.capture_logs() as logged:
        answer = await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE | {"cardDetails": CARD})
    message = house.requests[0]
    sealed = house.published()["card"]["sealed"]
    shown = f"{message}{answer.headers}{answer.text}{logged}".replace(sealed, "")
    assert [entry["event"] for entry in logged if entry["log_level"] == "info"] == ["submission.accepted"]
    assert _secrets_in(shown) == []


async def test_a_refusal_shows_nothing_of_the_card_either(house: Stages) -> None:
    with structlog.testing.capture_logs() as logged:
        card = CARD | {"cvv": 987}
        answer = await house.client.post(
            BOOKING_ENGINE_PATH, json=BOOKING_ENGINE | {"cardDetails": card, "currency": 1}
        )
    assert answer.status_code == 422
    assert _secrets_in(f"{answer.text}{logged}") == []


async def test_whoever_holds_the_private_key_reads_all_of_it(house: Stages) -> None:
    await _publish(house, CARD)
    submission = decode_submission(house.requests[0])
    assert submission.card is not None
    assert submission.card.key_id == house.key_id
    assert house.sealing_key.opened(submission) == CardDetails.model_validate(CARD)


def _open_cards() -> int:
    gc.collect()
    return sum(type(each) is CardDetails for each in gc.get_objects())  # `isinstance` takes pydantic ten times as long


@pytest.mark.parametrize("pieces", [pytest.param(1, marks=pytest.mark.slow), 2])
async def test_while_the_log_is_waited_for_the_card_is_not_open_in_memory(house: Stages, pieces: int) -> None:
    house.log.acknowledging.clear()
    body = json.dumps(BOOKING_ENGINE | {"cardDetails": CARD}).encode()
    before, headers = _open_cards(), HEADERS | {"Content-Type": "application/json"}
    posted = AsgiCall(house.app, BOOKING_ENGINE_PATH, headers, *([body] if pieces == 1 else [body[:100], body[100:]]))
    await house.log.attempted(1)
    assert _open_cards() == before
    house.log.acknowledging.set()
    await posted.ended()
    assert posted.status == 202
    assert house.published()["card"] is not None


@pytest.mark.parametrize("card", [{}, {"cardNumber": None}, {"cardNumber": "", "cvv": ""}])
async def test_a_card_without_content_is_not_sealed(house: Stages, card: dict[str, Any]) -> None:
    assert (await _publish(house, card))["card"] is None


def _is(house: Stages, kind: str) -> None:
    """Make the caller's account one of this kind."""
    accounts = house.directory.accounts
    house.directory.accounts = {**accounts, "alpha-1": replace(accounts["alpha-1"], kind=kind)}


WHOLE = BOOKING_ENGINE | {"roomId": BOOKING_ENGINE["propertyId"]}
"""For kinds that have no rooms, too."""


@pytest.mark.parametrize("kind", ["beds24", "cloudbeds", "hostaway", "booking-sync"])
async def test_a_card_that_its_pms_is_not_sent_ends_at_the_door(house: Stages, kind: str) -> None:
    """So that it lies nowhere to be stolen. Its caller is answered as ever."""
    _is(house, kind)
    with structlog.testing.capture_logs() as logged:
        answer = await house.client.post(BOOKING_ENGINE_PATH, json=WHOLE | {"cardDetails": CARD})
    assert answer.status_code == 202, answer.text
    assert house.published()["card"] is None
    assert house.published()["reservation"]["cardDetails"] == {"cardNumber": "411111******1111"}
    shown = f"{house.requests[0]}{answer.headers}{answer.text}{logged}"
    assert _secrets_in(shown) == []


@pytest.mark.parametrize(("kind", "channel"), [("website-builder", "SELF"), ("booking-sync", "PMS")])
async def test_a_card_that_its_pms_is_sent_is_sealed_for_it(house: Stages, kind: str, channel: str) -> None:
    _is(house, kind)
    answer = await house.client.post(BOOKING_ENGINE_PATH, json=WHOLE | {"cardDetails": CARD, "morChannel": channel})
    assert answer.status_code == 202, answer.text
    assert house.published()["card"]["keyId"] == house.key_id


async def test_no_card_is_no_card(house: Stages) -> None:
    published = await _publish(house, None)
    assert published["card"] is None
    assert "cardDetails" not in published["reservation"]


async def test_a_card_without_number_is_sealed_and_shows_nothing(house: Stages) -> None:
    published = await _publish(house, {"cardHolderName": "ANA R HOLDER"})
    assert published["reservation"]["cardDetails"] == {}
    assert published["card"]["keyId"] == house.key_id


async def test_the_general_operation_takes_no_card_and_lets_none_through(house: Stages) -> None:
    body = GENERAL | {"cardDetails": CARD}
    await house.client.post(GENERAL_PATH, json=body, headers={"Prefer": "respond-async"})
    assert house.published()["reservation"] == GENERAL
    assert house.published()["card"] is None


async def test_another_seal_of_the_same_card_is_the_same_request(house: Stages) -> None:
    body = BOOKING_ENGINE | {"cardDetails": CARD}
    headers = {"Idempotency-Key": "order-42"}
    answers = [await house.client.post(BOOKING_ENGINE_PATH, json=body, headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]


@for_each(
    ("number", "shown"),
    [
        ("4111111111111111", "411111******1111"),
        ("4111 1111 1111 1111", "411111******1111"),
        ("3782-822463-10005", "378282*****0005"),
        ("6304000000000123000", "630400*********3000"),
        ("411111111111", "************"),
        # A number, and a security code behind it.
        ("411111111111 123", "*" * 16),
        ("3782 822463 10005 1234", "*" * 22),
        ("4111 1111 1111 1111 003", "*" * 23),
        ("4111 1111 1111 1112", "*" * 19),
        ("12345678901", "***********"),
        ("987", "***"),
        ("", ""),
        ("not a number", "************"),
        # More digits than any card has: the last may be a security code.
        ("4111 1111 1111 1111 12/31 987", "*" * 29),
    ],
)
def test_what_shows_of_a_card_number(number: str, shown: str) -> None:
    assert masked(number) == shown


def test_a_card_in_memory_does_not_show_itself() -> None:
    card = CardDetails.model_validate(CARD)
    assert not [secret for secret in SECRETS if secret in f"{card} {card!r} {[card]} {json.dumps(str(card))}"]


async def test_without_a_key_a_card_is_not_taken_and_everything_else_is(house: Stages) -> None:
    house.sealing_key.sealer.use([])
    refused = await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE | {"cardDetails": CARD})
    assert (refused.status_code, refused.json()["code"]) == (503, "cards_unavailable")
    assert "retry-after" in refused.headers
    assert house.requests == []
    assert (await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE)).status_code == 202
