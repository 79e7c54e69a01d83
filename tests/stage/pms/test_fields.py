"""What becomes of each field: the tables of all kinds, whatever their accounts are set to, and the lines that they make."""

from collections.abc import Mapping
from typing import Any

from forwarder.pms.fields import SPECIFIED, FieldTable, InNotes, LeftOut, SentAs, words_for
from forwarder.pms.kinds.booking_sync.requests import FIELDS as BOOKING_SYNC
from forwarder.pms.mapping.adapter import MappedKind
from forwarder.pms.mapping.model import PmsMapping
from forwarder.pms.mapping.request import table_of
from forwarder.pms.port import AccountConnection, Loss
from forwarder.pms.registry import KINDS, check_options
from forwarder.pms.rehearsal import CREDENTIAL, WITHHELD
from forwarder.process.clock import SystemClock
from forwarder.reservation.request import MODELS
from forwarder_pms_kit.conformance import Site
from forwarder_pms_kit.conformance.fields import unlike_its_table
from forwarder_pms_kit.simulators import SITES
from tests.support.cases import for_each
from tests.support.pms.kinds.mapped import CLOUDBEDS_LIKE, LODGIFY_LIKE
from tests.support.simulator.accounts import ACCOUNTS
from tests.support.simulator.server import booking

_NOTES_ALONE: dict[str, Any] = {
    "create": {"path": "/b", "body": {"remarks": "comments", "who.card": "card.cardNumber"}}
}
_NO_NOTES: dict[str, Any] = {"create": {"path": "/{propertyId}/b", "body": {"name": "guest.name"}}}
_PARTS_OF_NAMES: dict[str, Any] = {
    "create": {
        "path": "/b",
        "body": {"first": "guest.firstName", "notes": {"field": ["notes", "comments"]}, "id": "reference"},
        "leftOut": ["paymentProviderKey", "card.cvv"],
    }
}
MORE: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "cloudbeds with a field for notes": ("cloudbeds", {"notesField": "notes", "propertyId": "77"}),
    "cloudbeds with a rate": ("cloudbeds", {"rateIds": {"5002": "R-9"}}),
    "booking-sync, strict, noting payments": ("booking-sync", {"strictBookings": True, "recordPayments": True}),
    "a mapping of forms": ("generic", {"mapping": CLOUDBEDS_LIKE}),
    "a mapping of JSON": ("generic", {"mapping": LODGIFY_LIKE}),
    "a mapping of notes and little else": ("generic", {"mapping": _NOTES_ALONE}),
    "a mapping without notes": ("generic", {"mapping": _NO_NOTES}),
    "a mapping of first names": ("generic", {"mapping": _PARTS_OF_NAMES}),
}
_NEEDED = {kind: SITES[kind].options if isinstance(KINDS[kind], MappedKind) else {} for kind in KINDS}
"""The options that accounts of a kind cannot do without."""
SET_AS = {
    **{
        name: (account.kind, {**_NEEDED[account.kind], **account.changes.get("options", {})})
        for name, account in ACCOUNTS.items()
    },
    **MORE,
}


@for_each("account", SET_AS)
async def test_what_the_table_says_is_what_is_sent(account: str) -> None:
    kind, options = SET_AS[account]
    site = Site("http://pms.example/api/v3", CREDENTIAL, options=options)
    set_to = site.options_at("http://localhost:1")
    check_options(kind, set_to)
    connection = AccountConnection("acme", kind, site.base_url, CREDENTIAL, options=set_to, grants=WITHHELD)
    adapter = KINDS[kind](connection, SystemClock())
    assert [finding async for finding in unlike_its_table(adapter, kind)] == []


@for_each("kind", KINDS)
def test_every_kind_says_what_becomes_of_every_field(kind: str) -> None:
    assert KINDS[kind].fields.missing == ()
    assert not KINDS[kind].fields.fates.keys() - set(SPECIFIED)


def test_no_field_of_the_requests_is_overlooked() -> None:
    names = {name.partition(".")[0] for name in SPECIFIED}
    assert names == {field.alias for model in MODELS.values() for field in model.model_fields.values()}
    assert {"guest.phone", "guest.address.country", "cardDetails.cvv"} < set(SPECIFIED)


TABLE = FieldTable.with_rest({"guest.name": SentAs(("who",)), "notes": LeftOut("deaf")}, InNotes(), "remarks")


def test_what_has_no_field_is_said_in_plain_words() -> None:
    said = booking(
        numberOfInfants=1,
        numberOfPets=0,
        promotionCode="SUMMER",
        paymentProviderKey="tok_7",
        morChannel="SELF",
        arrivalEstimatedTime=7.0,
        guest={"name": "Ana", "address": {"country": "Spain", "line1": ""}},
    )
    assert TABLE.lines(said) == [
        "Property: 5001",
        "Arrival: 2027-03-01",
        "Departure: 2027-03-04",
        "Estimated arrival: 7.0",
        "Children: 1",
        "Infants: 1",
        "Payment taken by: the host or the booking engine (SELF)",
        "Guests: 3",
        "Total price: 450.35",
        "Currency: EUR",
        "Payment provider key: tok_7",
        "Promotion code: SUMMER",
        "Country: Spain",
    ]


def test_what_does_not_fit_is_said_too() -> None:
    table = FieldTable.with_rest({}, SentAs(("x",)), "remarks")
    assert table.lines(booking()) == []
    assert table.lines(booking(), {"guest.email": None, "numberOfGuests": "3, or more", "promotionCode": None}) == [
        "Guests: 3, or more",
        "Guest's e-mail: maria@example.com",
    ]


def test_a_field_that_nobody_has_words_for_has_some() -> None:
    assert words_for("numberOfHamsters") == "Number of hamsters"


def test_what_may_be_given_in_vain_is_known() -> None:
    card = SentAs(("number",), only_if=("morChannel", "PMS"), otherwise=LeftOut("sensitive"))
    table = FieldTable({"notes": LeftOut("deaf"), "status": LeftOut("same", lost=False), "cardDetails.cvv": card})
    assert table.losses == [Loss("notes", "deaf"), Loss("cardDetails.cvv", "sensitive", ("morChannel", "PMS"))]


def test_of_a_mapping_without_notes_everything_else_is_lost() -> None:
    losses = {lost.field: lost.reason for lost in table_of(PmsMapping.model_validate(_NO_NOTES)).losses}
    assert "guest.name" not in losses
    assert "propertyId" not in losses
    assert losses["numberOfPets"] == "the mapping has no field for it, and none for notes"
    assert losses["cardDetails.cvv"] == "sensitive: the mapping sends no card"


def test_a_field_of_the_pms_is_named_as_the_caller_knows_it() -> None:
    assert BOOKING_SYNC.in_callers_words("start_at") == "start_at (arrivalDate)"
    assert BOOKING_SYNC.in_callers_words("adults") == "adults (numberOfGuests, numberOfAdults)"
    assert BOOKING_SYNC.in_callers_words("currency") == "currency"
    assert BOOKING_SYNC.in_callers_words("base") == "base"
    assert KINDS["beds24"].fields.in_callers_words("numAdult") == "numAdult (numberOfAdults, numberOfGuests)"
