"""Query parameters, and the refusal of those that an operation does not have. Pure.

A misspelt `dryRun` would book, and a misspelt filter would match everything; so unknown parameters are refused.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final
from urllib.parse import parse_qs

from starlette.types import Scope

from forwarder.reservation.checks.faults import nearest
from forwarder.reservation.problems import catalogue
from forwarder.reservation.problems.problem import Fault, Problem, pointer_to

Parameters = Mapping[str, Sequence[str]]
"""Query parameters by name, each with all of its values."""

_MAX_FAULTS: Final = 10


def parameters_of(scope: Scope) -> Parameters:
    """The query parameters of the request, including empty values."""
    query: bytes = scope["query_string"]
    return parse_qs(query.decode("latin-1"), keep_blank_values=True) if query else {}


def refuse_unknown(scope: Scope, known: Collection[str]) -> Problem | None:
    """The refusal if a parameter is not `known`, with the name that was probably meant."""
    if not scope["query_string"]:
        return None
    unknown = [name for name in parameters_of(scope) if name not in known]
    return invalid_query([_unknown(name, known) for name in unknown[:_MAX_FAULTS]]) if unknown else None


def invalid_query(faults: Sequence[Fault]) -> Problem:
    """Every fault in one problem."""
    detail = "; ".join(f"{fault.pointer[1:]} {fault.detail}" for fault in faults)
    return catalogue.INVALID_QUERY.problem(detail if detail.endswith("?") else f"{detail}.", faults=faults)


def _unknown(name: str, known: Collection[str]) -> Fault:
    meant = nearest(name, known)
    if meant is not None:
        hint = f"did you mean {meant}?"
    else:
        hint = f"there are {', '.join(sorted(known))}" if known else "this operation takes none"
    return Fault(pointer_to(name), "unknown_parameter", f"is no query parameter of this operation: {hint}")
