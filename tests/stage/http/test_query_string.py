"""Query parameters: a misspelt one is refused, wherever one may stand, with the name that was meant. It must not book."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from forwarder.reservation.checks.faults import nearest
from tests.support.cases import for_each
from tests.support.stages.bodies import BOOKING_ENGINE
from tests.support.stages.http_stages import BOOKING_ENGINE_PATH, BULK_PATH, GENERAL_PATH, Stages, stages

_PATH_VALUES = {"request_id": "rsv_" + "a" * 32, "id": "1", "delivery_id": "1"}


def _operations() -> Iterator[tuple[str, str, set[str]]]:
    """Method, path and documented query parameters of each operation for which a key is asked."""
    document = from_json(Path("schemas/openapi.json").read_bytes())
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if operation.get("security") == []:
                continue
            names = [each["$ref"].rpartition("/")[2] for each in operation["parameters"]]
            given = [document["components"]["parameters"][name] for name in names]
            yield method.upper(), path.format(**_PATH_VALUES), {each["name"] for each in given if each["in"] == "query"}


async def test_every_operation_refuses_what_it_does_not_document_and_takes_what_it_does() -> None:
    house: Stages
    async with stages() as house:
        for method, path, names in _operations():
            refused = await house.client.request(method, path, params={"bogus": "1"})
            assert (refused.status_code, refused.json()["code"]) == (400, "invalid_query"), (method, path)
            assert refused.json()["errors"][0]["pointer"] == "/bogus"
            for name in names:
                answer = await house.client.request(method, path, params={name: "?"})
                assert "unknown_parameter" not in answer.text, (method, path, name)
        assert not house.log.attempts


@for_each("path", [BOOKING_ENGINE_PATH, GENERAL_PATH, BULK_PATH])
@for_each("name", ["dryrun", "dry_run", "dry-run", "DryRun", "dryRum"])
async def test_a_misspelt_dry_run_does_not_book(path: str, name: str) -> None:
    house: Stages
    async with stages() as house:
        body: Any = (
            [{"operation": "booking-engine", "reservation": BOOKING_ENGINE}] if path == BULK_PATH else BOOKING_ENGINE
        )
        answer = await house.client.post(path, params={name: "true"}, json=body)
        assert answer.status_code == 400
        assert answer.json()["detail"].endswith("did you mean dryRun?")
        assert not house.log.attempts


async def test_a_misspelt_filter_does_not_let_everything_through() -> None:
    house: Stages
    async with stages() as house:
        answer = await house.client.get("/api/v1/vrs/reservations", params={"propertyid": "7", "zzz": "", "limit": "5"})
        assert answer.status_code == 400
        assert [each["pointer"] for each in answer.json()["errors"]] == ["/propertyid", "/zzz"]
        meant, unknown = (each["detail"] for each in answer.json()["errors"])
        assert meant == "is no query parameter of this operation: did you mean propertyId?"
        assert unknown.startswith("is no query parameter of this operation: there are arrivalFrom, ")


async def test_a_card_number_for_a_name_is_not_quoted() -> None:
    house: Stages
    async with stages() as house:
        answer = await house.client.get("/api/v1/vrs/reservations", params={"4111111111111111": "1", "a/b~c": ""})
        assert "4111111111111111" not in answer.text
        assert answer.json()["errors"][1]["pointer"] == "/a~1b~0c"


def test_what_is_like_nothing_has_no_nearest() -> None:
    assert nearest("", ["limit"]) is None
    assert nearest("x" * 10_000, ["limit"]) is None
    assert nearest("limits", ["limit", "cursor"]) == "limit"
