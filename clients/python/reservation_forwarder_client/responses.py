"""What a response says, as the client's own types. Pure. All raise `Unexpected` where an answer is not of the contract."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from reservation_forwarder_client.listing import Page, page_of
from reservation_forwarder_client.problems import Problem, Refused, Unexpected
from reservation_forwarder_client.records import Reservation, Status
from reservation_forwarder_client.submissions import DryRun, Submission
from reservation_forwarder_client.wire import Malformed, read

KEY_REUSED: Final = "idempotency_key_reused"

_Members = Mapping[str, Any]
Reader = Callable[[_Members], Submission]
_Given = ParamSpec("_Given")
_Shape = TypeVar("_Shape")


def _of_contract(reader: Callable[_Given, _Shape]) -> Callable[_Given, _Shape]:
    @wraps(reader)
    def checked(*args: _Given.args, **kwargs: _Given.kwargs) -> _Shape:
        try:
            return reader(*args, **kwargs)
        except Malformed as error:
            raise Unexpected(f"the answer is not of the contract: {error}") from error

    return checked


@_of_contract
def submission(members: _Members) -> Submission:
    """The state of a submission, or its acceptance."""
    data = _data(members)
    return read(Submission, {**data, "warnings": members["warnings"]} if "warnings" in members else data)


@_of_contract
def cancelling(members: _Members) -> Submission:
    """A submission whose cancellation was accepted."""
    data = _data(members)
    return read(Submission, {**data, "cancellation": {"status": data.get("cancellation")}})


@_of_contract
def made(members: _Members) -> Submission:
    """A submission whose outcome is a record, with the fields that the record has."""
    record = read(Reservation, _data(members))
    return Submission(
        request_id=record.request_id,
        status=record.status,
        updated_at=record.updated_at,
        reservation_id=record.id,
        problem=record.problem,
        record=record,
        raw=record.raw,
    )


def outcome(refused: Refused) -> Submission:
    """A submission that ended REJECTED: to one who waited that is answered as a problem which names it. Raises `refused` again
    where nothing was accepted."""
    problem = refused.problem
    if problem.request_id is None or problem.code == KEY_REUSED:
        raise refused
    return Submission(
        request_id=problem.request_id,
        status=Status.REJECTED,
        problem=problem,
        http_request_id=refused.http_request_id,
    )


@_of_contract
def reservation(members: _Members) -> Reservation:
    """One reservation."""
    return read(Reservation, _data(members))


@_of_contract
def dry_run(members: _Members) -> DryRun:
    """What would come of a reservation."""
    return read(DryRun, _data(members))


@_of_contract
def results(members: _Members, keys: Sequence[str | None]) -> list[Submission | Problem]:
    """What became of each item of a bulk, whose keys are `keys`."""
    found = _data(members).get("results")
    if not isinstance(found, Sequence) or len(found) != len(keys):
        raise Malformed(f"it does not tell of {len(keys)} items")
    return [_result(one, key) for one, key in zip(found, keys, strict=True)]


def _result(members: Any, key: str | None) -> Submission | Problem:
    if isinstance(members, Mapping) and "problem" in members:
        return read(Problem, members["problem"])
    return replace(read(Submission, members), idempotency_key=key)


@_of_contract
def page(members: _Members) -> Page:
    """A page of reservations."""
    return page_of(members)


def _data(members: _Members) -> _Members:
    data = members.get("data")
    if not isinstance(data, Mapping):
        raise Malformed("it has no data")
    return data
