"""The types of request bodies: they say what the contract says, and a type checker finds what it would refuse."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NotRequired, get_args, get_origin, get_type_hints, is_typeddict

import pytest

from reservation_forwarder_client import ForwarderClient, bodies
from tests.support.cases import for_each
from tools.contracts.openapi import openapi

CLIENT = Path(__file__).parents[3] / "clients" / "python"
SCHEMAS = openapi()["components"]["schemas"]
NAMES = {
    bodies.BookingEngineReservation: "BookingEngineReservation",
    bodies.GeneralReservation: "GeneralReservation",
    bodies.Guest: "Guest",
    bodies.GeneralGuest: "GeneralGuest",
    bodies.Address: "Address",
    bodies.GeneralAddress: "GeneralAddress",
    bodies.CardDetails: "CardDetails",
}
JSON_TYPES = {str: "string", date: "string", int: "integer", float: "number", Decimal: "number", NoneType: "null"}


def of_hint(hint: Any) -> Iterator[str]:
    """The JSON types, and the names of objects, that the client's type lets through."""
    if get_origin(hint) is NotRequired:
        yield from of_hint(get_args(hint)[0])
    elif get_origin(hint) is Literal:
        yield from ("string" for _ in get_args(hint))
    elif is_typeddict(hint):
        yield NAMES[hint]
    elif hint in JSON_TYPES:
        yield JSON_TYPES[hint]
    else:
        for one in get_args(hint):
            yield from of_hint(one)


def of_schema(schema: Mapping[str, Any]) -> Iterator[str]:
    """The same of the contract's."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        named = SCHEMAS[name]
        yield name if named["type"] == "object" else named["type"]
    elif "anyOf" in schema:
        for one in schema["anyOf"]:
            yield from of_schema(one)
    else:
        yield schema["type"]


@for_each(("shape", "name"), NAMES.items(), ids=NAMES.values())
def test_a_body_has_the_fields_and_the_types_of_the_contract(shape: Any, name: str) -> None:
    schema = SCHEMAS[name]
    hints = get_type_hints(shape, include_extras=True)
    assert {field: set(of_hint(hint)) for field, hint in hints.items()} == {
        field: set(of_schema(one)) for field, one in schema["properties"].items()
    }
    assert shape.__required_keys__ == set(schema.get("required", ()))


def misspelt(client: ForwarderClient) -> None:
    """Never called. `make check` fails where mypy does not find these faults, since nothing would be ignored then."""
    client.submit_general(
        {
            "propertyId": 1,
            "arrivalDate": "2031-06-01",
            "departureDate": "2031-06-05",
            "guest": {"frstName": "Ana"},  # type: ignore[typeddict-unknown-key]
        }
    )
    client.submit_general({"propertyId": 1, "arrivalDate": "2031-06-01", "guest": {}})  # type: ignore[typeddict-item]


SAMPLE = """\
from datetime import date
from decimal import Decimal

from reservation_forwarder_client import BookingEngineReservation, ForwarderClient

BOOKING: BookingEngineReservation = {
    "morChannel": "SELF",
    "propertyId": 1001,
    "roomId": "A-7",
    "arrivalDate": date(2031, 6, 1),
    "departureDate": "2031-06-05",
    "guest": {
        "name": "Ana Ruiz",
        "firstName": "Ana",
        "lastName": "Ruiz",
        "email": "ana.ruiz@example.com",
        "address": {
            "line1": "Calle Mayor 1",
            "line2": "",
            "postalCode": "28013",
            "city": "Madrid",
            "state": "Madrid",
            "country": "ES",
        },
    },
    "numberOfGuests": 2,
    "totalPrice": Decimal("480.50"),
    "currency": "EUR",
}


def book(client: ForwarderClient) -> str:
    return client.submit(BOOKING, idempotency_key="order-42").request_id
"""


@pytest.mark.slow
def test_a_program_of_a_callers_is_checked_by_the_types_that_come_with_the_package(tmp_path: Path) -> None:
    misspelt = SAMPLE.replace('"currency"', '"curency"').replace('"line2"', '"line3"').replace('"SELF"', '"HOST"')
    (tmp_path / "right.py").write_text(SAMPLE, encoding="utf-8")
    (tmp_path / "wrong.py").write_text(misspelt, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "right.py", "wrong.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(CLIENT)},
        capture_output=True,
        text=True,
        check=False,
    )
    faults = done.stdout.splitlines()
    assert done.returncode == 1, done.stdout + done.stderr
    assert not [line for line in faults if line.startswith("right.py")]
    for part in ('Extra key "curency"', 'Missing key "currency"', 'Extra key "line3"', "Literal['HOST']"):
        assert part in done.stdout, done.stdout
