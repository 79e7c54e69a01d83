"""Submissions and leased rows, as tests of the worker need them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from forwarder.pms.accounts import target_of
from forwarder.pms.port import Capabilities
from forwarder.process.clock import iso
from forwarder.reservation.evidence import NOTHING_SENT, Evidence, Target
from forwarder.reservation.outcome import InDoubt
from forwarder.reservation.request import SealedCard
from forwarder.reservation.submission import Submission
from forwarder.store.submissions.port import Attempt, Work
from forwarder.tenancy.port import Account

BASE_URL = "https://pms.test"
NOW = datetime(2027, 1, 1, tzinfo=UTC)


def submission(number: int = 1, *, account: str = "acc", card: SealedCard | None = None, **fields: Any) -> Submission:
    """A valid general submission; `fields` are added to the reservation or replace its own."""
    reservation = {
        "propertyId": 1000 + number,
        "roomId": "A",
        "arrivalDate": "2027-03-01",
        "departureDate": "2027-03-04",
        "guest": {"firstName": "Maria", "lastName": "Gonzalez", "email": "maria@example.com"},
        "totalPrice": 300.5,
        "currency": "EUR",
    } | fields
    return Submission(f"rsv_{number:032d}", "demo", account, "general", NOW, reservation, f"{number:032x}", card)


def work(
    number: int = 1,
    *,
    possibly_sent: bool = False,
    pushing: bool = False,
    attempts: tuple[Attempt, ...] = (),
    **more: Any,
) -> Work:
    """A leased row; `more` goes to `submission`. What may have been made of a possibly sent one carried all that a push can."""
    return Work(
        id=number,
        record_id=number,
        submission=submission(number, **more),
        partition=0,
        created_at="2027-01-01T00:00:00.000Z",
        deadline_at=NOW + timedelta(days=1),
        attempts=attempts,
        revision=0,
        evidence=doubtful() if possibly_sent else NOTHING_SENT,
        pushing=pushing,
    )


def doubtful(target: Target | None = None, *, at: datetime = NOW) -> Evidence:
    """One push to the account below that may have been made."""
    return NOTHING_SENT.after(InDoubt("pms_timeout", "No answer."), target or carried(), iso(at))


def carried(*, key: bool = True, reference: bool = True, kind: str = "generic") -> Target:
    """What a push to the account below carries, by what its PMS can do."""
    can = Capabilities(idempotent_create=key, find_by_reference=reference, cancel=True)
    return target_of(kind, BASE_URL, "", can)


def account(account_id: str = "acc", **settings: Any) -> Account:
    """An integration account of kind generic."""
    return Account(
        account_id, "demo", settings.pop("kind", "generic"), settings.pop("base_url", BASE_URL), "", **settings
    )
