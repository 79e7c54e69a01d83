"""What a caller is told of its bulk: one result an item, in their order. Pure."""

from collections.abc import Sequence
from typing import Any, assert_never

from pydantic_core import to_json

from forwarder.ingress.bulk import Kept
from forwarder.ingress.dry_run import DryRun
from forwarder.ingress.receipt import receipt_json
from forwarder.reservation.problem import Problem

Result = Kept | DryRun | Problem


def bulk_body(results: Sequence[Result], origin: str) -> bytes:
    """The receipt of each item that is safe, the dry run of each that was tried, the problem of each that was refused."""
    data = {
        "accepted": sum(isinstance(result, Kept) for result in results),
        "refused": sum(isinstance(result, Problem) for result in results),
        "results": [_shown(result, origin) for result in results],
    }
    return to_json({"data": data})


def _shown(result: Result, origin: str) -> dict[str, Any]:
    match result:
        case Kept():
            return receipt_json(result.receipt, origin)
        case DryRun():
            return result.as_json()
        case Problem():
            return {"problem": result.as_json()}
        case _:
            assert_never(result)
