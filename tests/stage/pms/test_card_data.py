"""A PMS that repeats a card, in whatever spelling: nothing of it is in the outcome."""

import threading
from typing import Any

import pytest

from forwarder.pms import responses as record
from forwarder.pms.responses import clean, without_card_data
from forwarder.reservation.checks.card_numbers import digits_of
from forwarder.reservation.outcome import Confirmed, InDoubt
from tests.support.cards import ESCAPED, NUMBER, SPELLINGS
from tests.support.cases import for_each
from tests.support.pms.kinds.open_pms import created
from tests.support.simulator.server import CARD, booking

RECORD: dict[str, Any] = {
    "notes": "Paid with {}.",
    "codes": {"accessCode": ["{}"]},
    "finances": {"fee": {"totalFee": 1, "breakdown": [{"name": "for {}", "type": "Fee", "total": 1}]}},
    "primaryGuest": {"name": "{}", "emails": [], "mobileNumbers": ["{}"]},
}


def _saying(value: Any, text: str) -> Any:
    match value:
        case str():
            return value.replace("{}", text)
        case dict():
            return {name: _saying(part, text) for name, part in value.items()}
        case list():
            return [_saying(part, text) for part in value]
        case _:
            return value


def _shows(outcome: object) -> bool:
    """Whether enough digits of the number are left anywhere, with whatever between them."""
    return "1" * 12 in digits_of(repr(outcome).replace(booking().reference, ""))


@pytest.mark.parametrize("card", [None, CARD.model_copy(update={"card_number": NUMBER})], ids=["look-up", "with card"])
async def test_no_spelling_gets_into_a_record(card: Any) -> None:
    asked = booking(card=card)
    outcomes = {
        name: await created(201, {"id": 5, "reference": asked.reference, **_saying(RECORD, spelt)}, asked)
        for name, spelt in (SPELLINGS | ESCAPED).items()
    }
    assert all(isinstance(outcome, Confirmed) and outcome.record for outcome in outcomes.values())
    assert [name for name, outcome in outcomes.items() if _shows(outcome)] == []


@for_each("status", [400, 409, 422, 500])
@for_each("card", [None, CARD.model_copy(update={"card_number": NUMBER})], ids=["look-up", "with card"])
async def test_no_spelling_gets_into_a_reason(card: Any, status: int) -> None:
    outcomes = {
        name: await created(
            status, {"code": "card_refused", "detail": f"Card {spelt} declined", "title": spelt}, booking(card=card)
        )
        for name, spelt in (SPELLINGS | ESCAPED).items()
    }
    assert [name for name, outcome in outcomes.items() if _shows(outcome)] == []


async def test_the_card_that_was_sent_is_known_however_its_digits_are_strewn() -> None:
    card = CARD.model_copy(update={"card_number": NUMBER})
    strewn = "4111 (first), then 11 and 11; 11-11 and last 11, 11."
    outcome = await created(201, {"id": 5, "notes": f"{strewn} Or {strewn}"}, booking(card=card))
    assert isinstance(outcome, Confirmed)
    assert outcome.record["notes"] == "411111******1111. Or 411111******1111."


@pytest.mark.parametrize(
    "outcome",
    [
        Confirmed("5", doubles=(f"B-{NUMBER}",)),
        InDoubt("pms_answer_not_understood", "What?", made=True, pms_reservation_id=f"B-{NUMBER}"),
    ],
    ids=["another reservation", "in doubt"],
)
def test_the_card_that_was_sent_is_masked_in_ids(outcome: Confirmed | InDoubt) -> None:
    asked = booking(card=CARD.model_copy(update={"card_number": NUMBER}))
    masked = without_card_data(outcome, asked)
    assert not _shows(masked)
    assert "B-411111******1111" in repr(masked)
    assert without_card_data(outcome, booking()) == outcome


async def test_a_security_code_is_masked_by_its_name() -> None:
    outcome = await created(201, {"id": 5, "notes": "cvv 987, door 987"})
    assert outcome == Confirmed("5", {"notes": "cvv ***, door 987"})


async def test_a_large_record_is_looked_through_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set()

    def noting(outcome: Any, asked: Any) -> Any:
        threads.add(threading.current_thread() is threading.main_thread())
        return without_card_data(outcome, asked)

    monkeypatch.setattr(record, "without_card_data", noting)
    line = {"name": "4 " * 128, "type": f"for {NUMBER}", "total": 1}
    large = Confirmed("R1", {"finances": {"fee": {"totalFee": 1, "breakdown": [line] * 200}}})
    cleaned = await clean(large, booking())
    assert cleaned == without_card_data(large, booking())
    assert NUMBER not in str(cleaned)
    assert threads == {False}
    await clean(Confirmed("R1", {"notes": "ok"}), booking())
    assert threads == {False, True}
