"""What the contract says of operations that are to go. Apart from `deprecations`, which every process that serves HTTP imports."""

from collections.abc import Sequence
from typing import Any, Final

from forwarder.published.answering import Json, references
from forwarder.published.deprecations import DEPRECATED, Deprecation

HEADERS: Final[Json] = {
    "Deprecation": {
        "description": "Since when the operation is deprecated: `@` and unix time (RFC 9745).",
        "schema": {"type": "string", "pattern": "^@-?[0-9]+$"},
        "example": "@1861920000",
    },
    "Sunset": {
        "description": "When it will answer no more (RFC 8594).",
        "schema": {"type": "string"},
        "example": "Wed, 01 Jan 2031 00:00:00 GMT",
    },
    "Link": {
        "description": "`deprecation`: where this is explained; `successor-version`: what to use instead.",
        "schema": {"type": "string"},
        "example": '</docs>; rel="deprecation"; type="text/html"',
    },
}


def marked(document: dict[str, Any], table: Sequence[Deprecation] = DEPRECATED) -> dict[str, Any]:
    """The contract, in which the operations of the `table` are deprecated. Raises `KeyError` for one that it does not have."""
    for one in table:
        operation = document["paths"][one.path][one.method.lower()]
        operation["deprecated"] = True
        operation["description"] = f"{one.told()}\n\n{operation.get('description', '')}".strip()
        names = tuple(name for name in HEADERS if name != "Sunset" or one.sunset)
        for response in operation["responses"].values():
            response["headers"] = response.get("headers", {}) | references(names)
        document["components"]["headers"] |= HEADERS
    return document
