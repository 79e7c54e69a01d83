"""Whoever copies a request that books, from wherever it is shown, can send it again without booking twice."""

import re
from collections.abc import Iterator
from pathlib import Path

from forwarder.cli.run.up import curl_command
from tests.support.cases import for_each
from tools.contracts.openapi import openapi

ROOT = Path(__file__).resolve().parents[3]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "clients").glob("*/README.md")]
FENCED = re.compile(r"^(?:```|~~~).*?\n(?P<block>.*?)^(?:```|~~~)\s*$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^ {4}.*\n)+", re.MULTILINE)
COMMAND = re.compile(r"\bcurl (?:(?!\bcurl ).)*", re.DOTALL)
BOOKS = re.compile(r"/vrs/reservations(?:/booking-engine|/bulk)?[\s\"'\\]")
SENDS_A_BODY = re.compile(r"\s(?:-d|--data\S*|--json|-T|--upload-file)\b")
SUBMITTING = ("submitReservation", "submitBookingEngineReservation", "submitReservations")


def bookings(text: str) -> Iterator[str]:
    """The commands in `text` that submit."""
    for command in COMMAND.findall(text):
        if BOOKS.search(command) and SENDS_A_BODY.search(command):
            yield command


def has_key(request: str) -> bool:
    return "Idempotency-Key" in request or "idempotencyKey" in request


def shown() -> Iterator[tuple[str, str]]:
    """Where it is shown, and the command."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = [match["block"] for match in FENCED.finditer(text)] + INDENTED.findall(FENCED.sub("", text))
        for number, command in enumerate(command for block in blocks for command in bookings(block)):
            yield f"{page.relative_to(ROOT)}:{number}", command
    (banner,) = bookings(curl_command("http://127.0.0.1:8080", "fwd_live_x"))
    yield "forwarder up", banner
    for operation in (one for methods in openapi()["paths"].values() for one in methods.values()):
        if operation["operationId"] in SUBMITTING:
            for sample in operation["x-codeSamples"]:
                yield f"{operation['operationId']} in {sample['label']}", sample["source"]


SHOWN = dict(shown())


def test_they_are_found() -> None:
    places = {place.partition(":")[0] for place in SHOWN}
    assert {"README.md", "docs/guides/first-steps.md", "docs/guides/test-mode.md", "forwarder up"} <= places
    assert {f"{operation} in curl" for operation in SUBMITTING} <= places


@for_each("place", SHOWN)
def test_a_request_that_books_has_a_key(place: str) -> None:
    assert has_key(SHOWN[place]), SHOWN[place]
