"""The published HTTP contract, held against what the service really answers: strictly, so that nothing unsaid is answered."""

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import httpx
from openapi_schema_validator import OAS31Validator
from openapi_schema_validator import oas31_format_checker as formats

_PUBLISHED = Path(__file__).parents[3] / "schemas" / "openapi.json"
_EVERY_ANSWER = {"content-type", "content-length", "date", "server", "transfer-encoding"}
_PAGE_HEADERS = {"content-security-policy", "x-content-type-options", "cache-control"}
_FOR_ALL_PATHS = {404: "not_found", 405: "method_not_allowed"}


class HttpContract:
    """The document."""

    def __init__(self) -> None:
        self.document: dict[str, Any] = json.loads(_PUBLISHED.read_bytes())
        self._components = closed_schema(self.document["components"])

    async def holds(self, response: httpx.Response) -> None:
        """A hook of an httpx client: raises where `response` is no answer that the document has for its request."""
        await response.aread()
        self.check(response)

    def check(self, response: httpx.Response) -> None:
        """Raises `AssertionError` or a `jsonschema` error where `response` is no answer of the document to its request."""
        operation = self.operation(response.request.method, response.request.url.path)
        if operation is None:
            assert response.json()["code"] == _FOR_ALL_PATHS[response.status_code]
            return
        assert str(response.status_code) in operation["responses"], (response.status_code, response.text)
        described = self.resolved(operation["responses"][str(response.status_code)])
        self._check_headers(described.get("headers", {}), response)
        if response.request.method != "HEAD" and "content" in described:
            self._check_body(described["content"], response)

    def operation(self, method: str, path: str) -> Mapping[str, Any] | None:
        """What the document says of such a request; None where it says nothing."""
        if method in {"GET", "HEAD"} and path.endswith(
            "/vrs/reservations/"
        ):  # described once, without the slash that may end it
            path = path.removesuffix("/")
        matching = [known for known in self.document["paths"] if _pattern(known).fullmatch(path)]
        exact = [known for known in matching if "{" not in known]
        for known in exact or matching:
            operations: Mapping[str, Any] = self.document["paths"][known]
            return operations.get("get" if method == "HEAD" else method.lower())
        return None

    def _check_headers(self, described: Mapping[str, Any], response: httpx.Response) -> None:
        known = {name.lower(): self.resolved(header) for name, header in described.items()}
        page = _PAGE_HEADERS if response.headers.get("content-type", "").startswith("text/html") else set()
        unsaid = set(response.headers) - set(known) - _EVERY_ANSWER - page
        assert not unsaid, f"headers that the contract does not have: {unsaid}"
        for name, header in known.items():
            if name in response.headers:
                text = response.headers[name]
                value = int(text) if header["schema"]["type"] == "integer" else text
                OAS31Validator(header["schema"], format_checker=formats).validate(value)

    def _check_body(self, content: Mapping[str, Any], response: httpx.Response) -> None:
        media_type = response.headers["content-type"].partition(";")[0]
        assert media_type in content, media_type
        value: Any = response.text if media_type == "text/html" else response.json()
        self.validate(content[media_type]["schema"], value)
        if media_type == "application/problem+json":
            assert value["code"] in content[media_type]["examples"], (
                value["code"],
                list(content[media_type]["examples"]),
            )
            assert value["status"] == response.status_code

    def validate(self, schema: Mapping[str, Any], value: Any) -> None:
        """Raises a `jsonschema` error where `value` is not of `schema`, or has a property that it does not name."""
        closed = {**closed_schema(schema), "components": self._components}
        OAS31Validator(closed, format_checker=formats).validate(value)

    def resolved(self, part: Mapping[str, Any]) -> Mapping[str, Any]:
        """What `part` refers to, if it is a reference."""
        if "$ref" not in part:
            return part
        target: Any = self.document
        for step in part["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        return self.resolved(target)


def closed_schema(schema: Any) -> Any:
    """The same schema, of which an object has no other properties than the declared."""
    if isinstance(schema, list):
        return [closed_schema(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {"additionalProperties": False} if isinstance(schema.get("properties"), dict) and "type" in schema else {}
    return closed | {name: closed_schema(part) for name, part in schema.items()}


@cache
def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{[^}]*\\\}", "[^/]+", re.escape(path)))
