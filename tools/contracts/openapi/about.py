"""The operations that tell of the service itself. No credential is asked for."""

from typing import Any, Final

from forwarder.reservation.problems.catalogue import CATALOGUE
from forwarder.reservation.problems.requests import HEADERS_TOO_LARGE, NOT_FOUND
from tools.contracts.openapi.responses import Json, not_modified, problems, references
from tools.contracts.pages.guides import guide_names

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


_GUIDE: Final = {
    "name": "guide",
    "in": "path",
    "required": True,
    "description": "The guide's name.",
    "schema": {"type": "string", "enum": [*guide_names()]},
    "example": "first-steps",
}
_IF_NONE_MATCH: Final = {"$ref": "#/components/parameters/IfNoneMatch"}
_START: Final = {
    "type": "object",
    "description": "Where things are: paths.",
    "required": ["service", "docs", "guides", "openapi", "asyncapi", "problems"],
    "properties": {
        "service": {"type": "string"},
        **{
            name: {"type": "string", "format": "uri-reference", "description": about}
            for name, about in (
                ("docs", "The contract as a page, to read and to try."),
                ("guides", "The guides, as pages."),
                ("openapi", "The contract of the HTTP API."),
                ("asyncapi", "The contract of the messages."),
                ("problems", "Every problem, as a page."),
            )
        },
    },
}
_HTML: Final = {"text/html": {"schema": {"type": "string"}}}
_OBJECT: Final = {"application/json": {"schema": {"type": "object"}}}
_CACHE: Final = {
    "Cache-Control": {
        "description": "For how long it may be kept.",
        "schema": {"type": "string", "const": "max-age=300"},
    }
}
_ENCODED: Final = {
    "Content-Encoding": {
        "description": "`gzip` for those who take it.",
        "schema": {"type": "string", "const": "gzip"},
    },
    "X-Content-Type-Options": {
        "description": "It is of the type that it says.",
        "schema": {"type": "string", "const": "nosniff"},
    },
}

SCHEMAS: Final[Json] = {"ProblemType": _PROBLEM_TYPE, "Start": _START}


def about_paths() -> Json:
    """Their paths. No credential is asked for."""
    yaml = {"application/yaml": {"schema": {"type": "object"}}}
    of_problem = {"application/json": {"schema": {"$ref": "#/components/schemas/ProblemType"}}}
    problem = _file("getProblemType", "What a problem means", "HTML, or JSON for `Accept: application/json`.", _HTML)
    problem["responses"]["200"]["content"] |= of_problem
    guide = _file("getGuide", "A guide", "A guide as a page.", _HTML)
    return {
        "/": {"get": _start()},
        "/openapi.json": {"get": _file("getContract", "This contract", "As OpenAPI 3.1.", _OBJECT)},
        "/asyncapi.yaml": {
            "get": _file("getMessageContract", "The contract of the messages", "As AsyncAPI 3.0.", yaml)
        },
        "/pms-openapi.json": {
            "get": _file(
                "getPmsContract",
                "The contract that a PMS can implement",
                "As OpenAPI 3.1: what accounts of kind `generic` ask their PMS.",
                _OBJECT,
            )
        },
        "/docs": {
            "get": _file("getDocs", "This contract as a page", "To read it, to search it and to try it out.", _HTML)
        },
        "/docs/guides": {"get": _file("getGuides", "All guides", "A page that leads to each.", _HTML)},
        "/docs/guides/{guide}": {"get": _of(_GUIDE, guide)},
        "/problems": {"get": _file("getProblems", "Every problem", "A page that leads to each.", _HTML)},
        "/problems/{code}": {"get": _of(_CODE, problem)},
    }


def _start() -> Json:
    operation = _get("getStart", "Where to begin", "A browser is sent to the docs, a program told where things are.")
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Start"}}}
    headers = references(("Vary",))
    operation["responses"] = {
        "200": {"description": "Where things are.", "headers": headers | _CACHE, "content": content},
        "303": {"description": "For `Accept: text/html`.", "headers": headers | references(("Location",))},
        **operation["responses"],
    }
    return operation


def _of(parameter: Json, operation: Json) -> Json:
    """`operation` on what `parameter` names."""
    operation["parameters"] = [parameter, *operation["parameters"]]
    operation["responses"] |= problems((NOT_FOUND,))
    return operation


def _file(operation_id: str, summary: str, about: str, content: Json) -> Json:
    """One that shows a file."""
    operation = _get(operation_id, summary, about)
    operation["parameters"] = [_IF_NONE_MATCH]
    headers = references(("ETag", "Vary")) | _CACHE
    unchanged = not_modified("ETag", "Vary")
    unchanged["headers"] |= _CACHE | {"X-Content-Type-Options": _ENCODED["X-Content-Type-Options"]}
    unchanged["headers"]["Content-Security-Policy"] = {
        "description": "Of a page: what it may run and fetch.",
        "schema": {"type": "string"},
    }
    operation["responses"] = {
        "200": {"description": summary + ".", "headers": headers | _ENCODED, "content": dict(content)},
        "304": unchanged,
        **operation["responses"],
    }
    return operation


def _get(operation_id: str, summary: str, about: str) -> dict[str, Any]:
    return {
        "operationId": operation_id,
        "tags": ["About"],
        "summary": summary,
        "description": about,
        "security": [],
        "responses": problems((HEADERS_TOO_LARGE,)),
    }
