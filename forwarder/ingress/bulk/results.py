"""The response to a bulk: the result of each item, and its place in the request. Pure."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, assert_never

from forwarder.ingress.dry_run import DryRun
from forwarder.ingress.losses import CallerWarning
from forwarder.ingress.message import NewSubmission
from forwarder.ingress.publish.idempotency import Receipt
from forwarder.ingress.receipts import receipt_json, receipt_warnings
from forwarder.reservation.json_text import json_text
from forwarder.reservation.problems.problem import Problem


class SafeItem(NamedTuple):
    """An item that is safe on the log, and its receipt."""

    submission: NewSubmission
    receipt: Receipt


Result = SafeItem | DryRun | Problem
"""The result of an item."""


class Place(NamedTuple):
    """Locates the item of a result for the caller: how many items came before it, its `line` (from 1) in NDJSON, and its
    idempotency key."""

    before: int
    line: int | None = None
    key: str | None = None

    def as_json(self) -> dict[str, Any]:
        line = {} if self.line is None else {"line": self.line}
        return {"index": self.before, **line, **({} if self.key is None else {"idempotencyKey": self.key})}


def label_of(result: Result) -> tuple[str, str]:
    """The metric labels of a result: operation and result."""
    match result:
        case SafeItem():
            return result.submission.operation, "accepted"
        case DryRun():
            return "bulk", "dry_run"
        case Problem():
            return "bulk", result.code
        case _:
            assert_never(result)


ENVELOPE_BYTES: Final = 128
"""An upper bound of the response's size without its results."""
_RESULT_BYTES: Final = 1_024
"""An upper bound of a receipt with the warning `sent_again`, and of a refusal by the idempotency key or the log."""
_SIMILAR_BYTES: Final = 1_024
"""Added to that, an upper bound of a receipt that names `MAX_SIMILAR` submissions twice, or a refusal that names every field
twice."""


def result_bytes(made: NewSubmission | DryRun | Problem, place: Place, origin: str) -> int:
    """An upper bound of the bytes of an item's result. They are held before anything is accepted, because a client may leave the
    response unread. Without the requests of a dry run: its response can still be refused."""
    where = len(json_text(place.as_json()))
    match made:
        case Problem():
            links = 2 * len(origin)  # which the server adds, see `PUBLIC_URL`
            return where + links + len(json_text({"success": False, "problem": made.as_json()}))
        case DryRun():
            return where + _RESULT_BYTES + _warning_bytes(made.warnings)
        case NewSubmission():
            similar = 0 if made.natural is None else _SIMILAR_BYTES
            refused = 0 if made.refused is None else len(json_text(made.refused.as_json()))
            return where + _RESULT_BYTES + len(json_text(origin)) + similar + refused + _warning_bytes(made.warnings)
        case _:
            assert_never(made)


def _warning_bytes(warnings: Sequence[CallerWarning]) -> int:
    return len(json_text([each.as_json() for each in warnings])) if warnings else 0


def bulk_body(results: Sequence[Result], places: Sequence[Place], origin: str) -> bytes:
    """The receipt of each item that is safe, the dry run of each that was tried, the problem of each that was refused; and of each,
    and of all together, whether it is a success."""
    shown: list[dict[str, Any]] = []
    keyed: set[str] = set()  # the request ids of the items with a key so far
    for place, result in zip(places, results, strict=True):
        again = place.key is not None and isinstance(result, SafeItem) and _is_replayed(result, keyed)
        shown.append({**place.as_json(), **_shown(result, origin), **({"idempotentReplayed": True} if again else {})})
    data = {
        "accepted": sum(isinstance(result, SafeItem) for result in results),
        "refused": sum(isinstance(result, Problem) for result in results),
        "results": shown,
    }
    return json_text({"success": all(result["success"] for result in shown), "data": data})


def _is_replayed(item: SafeItem, keyed: set[str]) -> bool:
    """Whether the item's key was used before, be it by an earlier item of this bulk. Adds it to `keyed`."""
    request_id = item.submission.request_id
    again = item.receipt.replayed or request_id in keyed
    keyed.add(request_id)
    return again


def _shown(result: Result, origin: str) -> dict[str, Any]:
    match result:
        case SafeItem():
            shown = {"success": result.receipt.status.success, **receipt_json(result.receipt, origin)}
            told = (*result.submission.warnings, *receipt_warnings(result.receipt))
            warnings = [warning.as_json() for warning in told]
            return {**shown, "warnings": warnings} if warnings else shown
        case DryRun():
            return {"success": result.success, **result.as_json()}
        case Problem():
            return {"success": False, "problem": result.as_json()}
        case _:
            assert_never(result)
