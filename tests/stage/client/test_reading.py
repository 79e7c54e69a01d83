"""What the client reads is what the contract has: each of its answers, each field, and whatever v1 may add."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forwarder.reservation.outcome import Status as Outcome
from reservation_forwarder_client import Submission, listing, outcomes, problems, records, responses, submissions
from reservation_forwarder_client.wire import RAW, Malformed, members_of, read
from tests.support.cases import for_each
from tools.contracts.answers import response_examples

CONTRACT = Path(__file__).parents[3] / "schemas" / "openapi.json"
SCHEMAS = json.loads(CONTRACT.read_text())["components"]["schemas"]
SHAPES = [
    *(
        (shape, shape.__name__)
        for module in (records, submissions)
        for shape in vars(module).values()
        if isinstance(shape, type) and dataclasses.is_dataclass(shape) and shape.__module__ == module.__name__
    ),
    (problems.Problem, "Problem"),
    (problems.Fault, "Fault"),
    (listing.Cursors, "Cursors"),
]
OWN = {"idempotencyKey", "idempotentReplayed", "duplicateOf", "httpRequestId", "statusUrl", RAW}
OUTCOMES: dict[str, type[outcomes.Outcome]] = {
    "CONFIRMED": outcomes.Confirmed,
    "REJECTED": outcomes.Rejected,
    "IN_DOUBT": outcomes.InDoubt,
    "CANCELLED": outcomes.Cancelled,
}
OF_THE_ENVELOPE = {"Submission": {"warnings"}}


def example_of(name: str) -> Any:
    """An answer of the contract, as it comes over the wire."""
    return members_of(json.dumps(response_examples()[name]).encode())


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)


@for_each(("shape", "name"), SHAPES, ids=[name for _, name in SHAPES])
def test_a_shape_has_the_fields_that_the_contract_has(shape: Any, name: str) -> None:
    assert {camel(one.name) for one in dataclasses.fields(shape)} - OWN - OF_THE_ENVELOPE.get(name, set()) == {
        field for field, schema in SCHEMAS[name]["properties"].items() if "const" not in schema
    }


@for_each("name", [name for name in response_examples() if name.startswith("submission")])
def test_every_submission_that_is_shown_is_read(name: str) -> None:
    example = example_of(name)
    submission = responses.submission(example)
    assert (submission.request_id, submission.status) == (example["data"]["requestId"], example["data"]["status"])
    assert len(submission.attempts) == len(example["data"].get("attempts", ()))
    assert (submission.problem is None) == (example["data"].get("problem") is None)
    assert submission.raw == example["data"]
    assert type(submission.outcome) is OUTCOMES.get(submission.status, type(None))


def test_the_warnings_of_a_receipt_are_read() -> None:
    example = example_of("submissionAccepted")
    warning = {"code": "card_not_sent", "pointer": "/cardDetails", "detail": "The card goes nowhere."}
    [read_warning] = responses.submission({**example, "warnings": [warning]}).warnings
    assert dataclasses.asdict(read_warning) == warning


def _grown(value: Any) -> Any:
    """`value` with a field more in each object: what v1 may become."""
    if isinstance(value, dict):
        return {name: _grown(part) for name, part in value.items()} | {"addedLater": {"a": [1]}}
    return [_grown(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", ["submissionConfirmed", "submissionRejected", "submissionCancelled"])
def test_what_is_added_is_passed_over_and_there_to_look_up(name: str) -> None:
    example = example_of(name)
    submission = responses.submission(_grown(example))
    assert submission == responses.submission(example)
    assert submission.raw["addedLater"] == {"a": [1]}
    if submission.record is not None:
        assert submission.record.raw["addedLater"] == {"a": [1]}


def test_a_status_that_is_added_is_read() -> None:
    added = read(Submission, {"requestId": "rsv_x", "status": "ON_HOLD"})
    assert added.settled
    assert added.outcome == outcomes.OtherOutcome("ON_HOLD")


def test_a_status_alone_is_no_outcome_yet() -> None:
    """As a receipt tells it: the record, or the problem, is read from the submission."""
    for status in Outcome:
        assert read(Submission, {"requestId": "rsv_x", "status": status.value}).outcome is None


def test_failed_is_told_by_its_problem() -> None:
    failed = example_of("submissionRejected")["data"] | {"status": "FAILED"}
    assert isinstance(read(Submission, failed).outcome, outcomes.Failed)


def _broken() -> Iterator[dict[str, Any]]:
    good = example_of("submissionConfirmed")["data"]
    yield {name: value for name, value in good.items() if name != "status"}
    for name, wrong in [
        ("requestId", 7),
        ("reservationId", True),
        ("acceptedAt", "soon"),
        ("attempts", {}),
        ("record", []),
    ]:
        yield {**good, name: wrong}
    yield {**good, "record": {**good["record"], "totalPrice": "480.50"}}
    yield {**good, "record": {**good["record"], "totalPrice": True}}
    yield {**good, "record": {**good["record"], "primaryGuest": {}}}


@for_each("members", list(_broken()))
def test_what_is_not_of_the_contract_is_told_by_its_name(members: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        read(Submission, members)
