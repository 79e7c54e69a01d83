"""The operations that tell about the service itself: this contract, its page, and the problems'."""

from typing import Any, Final

from forwarder.published.answering import Json, problems, references
from forwarder.reservation.problems.chapters import CATALOGUE
from forwarder.reservation.problems.requests import NOT_FOUND

_CODE: Final = {
    "name": "code",
    "in": "path",
    "required": True,
    "description": "The problem's `code`.",
    "schema": {"type": "string", "enum": list(CATALOGUE)},
    "example": NOT_FOUND.code,
}
_PROBLEM_TYPE: Final = {
    "type": "object",
    "description": "What a problem means.",
    "required": ["type", "code", "title", "status", "when", "remedy"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "code": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "when": {"type": "string", "description": "When it happens."},
        "remedy": {"type": "string", "description": "What to do."},
    },
}

SCHEMAS: Final[Json] = {"ProblemType": _PROBLEM_TYPE}


def about_paths() -> Json:
    """Their paths. No credential is asked for."""
    of_problem = _get(
        "getProblemType",
        "What a problem means",
        {
            "text/html": {"schema": {"type": "string"}},
            "application/json": {"schema": {"$ref": "#/components/schemas/ProblemType"}},
        },
    )
    of_problem["parameters"] = [_CODE]
    of_problem["responses"]["200"]["headers"] = references(("Vary",))
    of_problem["responses"] |= problems((NOT_FOUND,))
    return {
        "/openapi.json": {
            "get": _get("getContract", "This contract", {"application/json": {"schema": {"type": "object"}}})
        },
        "/docs": {"get": _get("getDocs", "This contract as a page", {"text/html": {"schema": {"type": "string"}}})},
        "/problems": {"get": _get("getProblems", "Every problem", {"text/html": {"schema": {"type": "string"}}})},
        "/problems/{code}": {"get": of_problem},
    }


def _get(operation_id: str, summary: str, content: Json) -> dict[str, Any]:
    return {
        "operationId": operation_id,
        "tags": ["About"],
        "summary": summary,
        "security": [],
        "responses": {"200": {"description": "It.", "content": content}},
    }
