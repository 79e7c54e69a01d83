"""Requests and answers held against a vendor's OpenAPI 3.0 document: strictly, so that a field it does not know is a fault."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import httpx
from openapi_schema_validator import OAS30Validator
from pydantic_core import from_json

_FORM = "application/x-www-form-urlencoded"
_STEPS = re.compile(r"[^\[\]]+")


class OpenApi:
    """A document. `base_path` is where its paths begin in the addresses that are checked."""

    def __init__(self, document: Mapping[str, Any], base_path: str) -> None:
        self._document = document
        self._base_path = base_path

    def check_request(self, request: httpx.Request) -> None:
        """Raises `AssertionError` or a `jsonschema` error where `request` is not one that the document describes."""
        operation = self._operation(request)
        declared = {one["name"]: one for one in operation.get("parameters", ()) if one["in"] == "query"}
        for name, text in request.url.params.multi_items():
            assert name in declared, f"{request.method} {request.url.path} knows no parameter {name}"
            self._validate(declared[name]["schema"], _typed(text, declared[name]["schema"]))
        missing = {name for name, one in declared.items() if one.get("required")} - set(request.url.params)
        assert not missing, f"parameters that are missing: {missing}"
        if request.content:
            self._check_body(operation, request)

    def check_answer(self, request: httpx.Request, answer: httpx.Response) -> None:
        """As `check_request`, for an answer that the document describes."""
        described = self._operation(request)["responses"]
        response = next(one for status, one in described.items() if str(status) == str(answer.status_code))
        self._validate(response["content"]["application/json"]["schema"], from_json(answer.content))

    def _operation(self, request: httpx.Request) -> Mapping[str, Any]:
        assert request.url.path.startswith(self._base_path)
        path = request.url.path.removeprefix(self._base_path)
        matching = [known for known in self._document["paths"] if re.fullmatch(_pattern(known), path)]
        assert matching, f"no path {path}"
        exact = [known for known in matching if "{" not in known]
        operation: Mapping[str, Any] = self._document["paths"][(exact or matching)[0]][request.method.lower()]
        return operation

    def _check_body(self, operation: Mapping[str, Any], request: httpx.Request) -> None:
        media_type = request.headers["content-type"].partition(";")[0]
        schema = operation["requestBody"]["content"][media_type]["schema"]
        body = self._form(schema, request) if media_type == _FORM else from_json(request.content)
        self._validate(schema, body)

    def _form(self, schema: Mapping[str, Any], request: httpx.Request) -> Any:
        form: dict[str, Any] = {}
        for name, text in parse_qsl(request.content.decode("ascii"), strict_parsing=True):
            _put(form, _STEPS.findall(name), text)
        return _typed(form, self._resolved(schema))

    def _validate(self, schema: Mapping[str, Any], value: Any) -> None:
        OAS30Validator(self._resolved(schema)).validate(value)

    def _resolved(self, schema: Any) -> Any:
        """`schema` with every reference put in its place, and closed: an object has no other properties than the declared."""
        if isinstance(schema, list):
            return [self._resolved(part) for part in schema]
        if not isinstance(schema, dict):
            return schema
        if "$ref" in schema:
            target: Any = self._document
            for step in schema["$ref"].removeprefix("#/").split("/"):
                target = target[step]
            return self._resolved(target)
        closed = {"additionalProperties": False} if "properties" in schema else {}
        return closed | {name: self._resolved(part) for name, part in schema.items()}


def _pattern(path: str) -> str:
    return re.sub(r"\\\{[^}]*\\\}", "[^/]+", re.escape(path))


def _put(form: dict[str, Any], steps: list[str], text: str) -> None:
    """As PHP reads names: `rooms[0][roomTypeID]` is a field of the first of a list."""
    *path, last = steps
    for step in path:
        form = form.setdefault(step, {})
    assert last not in form, f"{steps} is given twice"
    form[last] = text


def _typed(value: Any, schema: Mapping[str, Any]) -> Any:
    """What texts of a form or a query stand for, by the schema's types."""
    match schema.get("type"), value:
        case "array", dict():
            assert list(value) == [str(index) for index in range(len(value))]
            return [_typed(part, schema["items"]) for part in value.values()]
        case _, dict():
            return {name: _typed(part, schema.get("properties", {}).get(name, {})) for name, part in value.items()}
        case "array" | "object", str() if value[:1] in ("[", "{"):  # as text, in the query
            return from_json(value)
        case "integer", str() if re.fullmatch(r"-?\d+", value):
            return int(value)
        case "boolean", "true" | "false":
            return value == "true"
        case _:
            return value
