"""Cloudbeds: what it has no field for becomes a note of the reservation, once, and whatever happens to it is told."""

from urllib.parse import parse_qsl

import httpx
import pytest
from structlog.testing import capture_logs

from forwarder.reservation.outcome import Absent, Confirmed, Rejected
from tests.support.pms.kinds.cloudbeds import Vendor, answered, cancel, create, find, item, listed, made, no, shown
from tests.support.simulator.server import booking

NOTES = """\
Late arrival
Two dogs
Infants: 1, counted as children
Total price: 450.35
Currency: EUR
Address: Calle Mayor 7
City: Madrid"""
ASKED = booking(comments="Two dogs", numberOfInfants=1, numberOfGuests=4)
TAKEN = answered({"success": True, "reservationNoteID": "1"})
LOST = httpx.ReadError("gone")


def noting(*answers: httpx.Response | httpx.HTTPError) -> Vendor:
    return Vendor(postReservation=made(), postReservationNote=answers, getReservation=shown())


async def test_what_has_no_field_is_a_note() -> None:
    vendor = noting(TAKEN)
    assert isinstance(await create(vendor, ASKED), Confirmed)
    assert vendor.asked == ["postReservation", "postReservationNote", "getReservation"]
    assert dict(parse_qsl(vendor.requests[1].content.decode())) == {
        "propertyID": "5001",
        "reservationID": "9001",
        "reservationNote": NOTES,
    }


async def test_an_account_with_a_field_for_notes_leaves_none() -> None:
    vendor = noting(TAKEN)
    await create(vendor, ASKED, notesField="notes")
    assert vendor.asked == ["postReservation", "getReservation"]
    assert dict(parse_qsl(vendor.requests[0].content.decode()))["customFields[0][fieldValue]"] == NOTES


@pytest.mark.parametrize("first", [LOST, no("Not now"), answered(b"<html>", 502), answered({}, 429)])
async def test_a_note_is_left_again_once(first: httpx.Response | httpx.HTTPError) -> None:
    vendor = noting(first, TAKEN)
    with capture_logs() as logged:
        assert isinstance(await create(vendor, ASKED), Confirmed)
    assert vendor.asked.count("postReservationNote") == 2
    assert not logged


async def test_a_note_that_is_lost_is_told_and_takes_nothing_from_the_booking() -> None:
    vendor = noting(LOST)
    with capture_logs() as logged:
        assert isinstance(await create(vendor, ASKED), Confirmed)
    assert vendor.asked.count("postReservationNote") == 2
    assert [(line["event"], line["request_id"]) for line in logged] == [("note.lost", ASKED.reference)]
    assert "Madrid" not in str(logged)


async def test_nothing_is_noted_of_what_was_not_made() -> None:
    vendor = Vendor(postReservation=no("No rooms left"), postReservationNote=TAKEN)
    assert isinstance(await create(vendor, ASKED), Rejected)
    assert vendor.asked == ["postReservation"]


def looked_up(notes: httpx.Response | httpx.HTTPError, *items: object) -> Vendor:
    return Vendor(
        getReservations=listed(*items), getReservation=shown(), getReservationNotes=notes, postReservationNote=TAKEN
    )


PLAIN = "Late arrival\nTotal price: 450.35\nCurrency: EUR\nAddress: Calle Mayor 7\nCity: Madrid"


@pytest.mark.parametrize(
    ("notes", "left"),
    [
        (answered({"success": True, "data": [{"reservationNote": PLAIN}]}), 0),
        (answered({"success": True, "data": [{"reservationNote": "Key in the box"}]}), 1),
        (answered({"success": True, "data": []}), 1),
        (LOST, 1),
    ],
)
async def test_what_is_found_has_its_note_in_the_end(notes: httpx.Response | httpx.HTTPError, left: int) -> None:
    vendor = looked_up(notes, item())
    assert isinstance(await find(vendor), Confirmed)
    assert vendor.asked.count("postReservationNote") == left


async def test_what_is_not_there_gets_none() -> None:
    vendor = looked_up(TAKEN)
    assert isinstance(await find(vendor), Absent)
    assert vendor.asked == ["getReservations"]


async def test_a_cancellation_leaves_none() -> None:
    vendor = Vendor(
        putReservation=no("Not possible"), getReservation=no("Not found"), getReservations=listed(item()),
        postReservationNote=TAKEN,
    )  # fmt: skip
    await cancel(vendor)
    assert "postReservationNote" not in vendor.asked
