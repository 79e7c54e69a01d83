"""Whether one version of the contracts keeps the promise of the version before: under `v1` things are only ever added. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic_core import from_json

from tools.contracts.schema_changes import Comparison, Side, resolved

_OPERATIONS: Final = {"openapi.json": True, "pms-openapi.json": False}
"""The files of operations, and whether the service is the one who answers them."""
_EVENTS: Final = "events/"
_METHODS: Final = ("get", "head", "post", "put", "patch", "delete", "options")
_Json = Mapping[str, Any]


def promises(contracts: Mapping[str, str]) -> Mapping[str, str]:
    """Of the contracts (path below schemas/ → text) those that are held against a release: the others say the same again."""
    return {path: text for path, text in contracts.items() if path in _OPERATIONS or path.startswith(_EVENTS)}


def broken_promises(released: Mapping[str, str], contracts: Mapping[str, str]) -> list[str]:
    """Each break of what was `released` that the `contracts` of now bring."""
    return [one for path, text in promises(released).items() for one in _file(path, text, contracts.get(path))]


def _file(path: str, released: str, text: str | None) -> list[str]:
    if text is None:
        return [f"{path}: is gone"]
    old, new = from_json(released), from_json(text)
    if path in _OPERATIONS:
        return [f"{path}: {one}" for one in breaking_changes(old, new, served=_OPERATIONS[path])]
    return broken_event(old, new, path)


def breaking_changes(old: _Json, new: _Json, *, served: bool = True) -> list[str]:
    """Each change between two OpenAPI documents that breaks a client of the old one; empty where everything was only added.

    `served`: the service answers these operations. Where it is the one who calls them, as with the contract that a PMS implements,
    what is sent and what is received change sides.
    """
    return list(_Documents(old, new, served=served).breaks())


def broken_event(old: _Json, new: _Json, name: str) -> list[str]:
    """The same of an event's schema."""
    return Comparison(old, new).breaks(old, new, "received", name)


class _Documents:
    def __init__(self, old: _Json, new: _Json, *, served: bool) -> None:
        self._old = old
        self._new = new
        self._schemas = Comparison(old, new)
        self._asked: Side = "sent" if served else "received"
        self._answered: Side = "received" if served else "sent"

    def breaks(self) -> Iterator[str]:
        for path, method, before, after in self._pairs("paths"):
            yield from self._operation(before, after, f"{method.upper()} {path}")
        for name, _, before, after in self._pairs("webhooks"):
            yield from self._webhook(before, after, f"webhook {name}")
        yield from self._gone()

    def _pairs(self, section: str) -> Iterator[tuple[str, str, _Json, _Json]]:
        """The operations that both documents have."""
        for path, item in self._old.get(section, {}).items():
            others = self._new.get(section, {}).get(path, {})
            yield from (
                (path, method, item[method], others[method])
                for method in _METHODS
                if method in item.keys() & others.keys()
            )

    def _gone(self) -> Iterator[str]:
        for section in ("paths", "webhooks"):
            for path, item in self._old.get(section, {}).items():
                others = self._new.get(section, {}).get(path, {})
                yield from (
                    f"{method.upper()} {path}: is gone" for method in _METHODS if method in item.keys() - others.keys()
                )

    def _operation(self, old: _Json, new: _Json, where: str) -> Iterator[str]:
        if old.get("operationId") != new.get("operationId"):
            yield f"{where}: its operationId was {old.get('operationId')}, is {new.get('operationId')}"
        if old.get("security") == [] != new.get("security"):
            yield f"{where}: asks for a credential now"
        yield from self._parameters(old, new, where)
        yield from self._body(old, new, self._asked, where)
        yield from self._answers(old, new, where)

    def _webhook(self, old: _Json, new: _Json, where: str) -> Iterator[str]:
        """What the service sends and others receive."""
        for place, name in _parameters(self._old, old).keys() - _parameters(self._new, new).keys():
            yield f"{where}: {place} {name} is gone"
        yield from self._body(old, new, self._answered, where)

    def _parameters(self, old: _Json, new: _Json, where: str) -> Iterator[str]:
        before, after = _parameters(self._old, old), _parameters(self._new, new)
        for key, parameter in before.items():
            name = f"{where}: {key[0]} parameter {key[1]}"
            if key not in after:
                yield f"{name} is gone"
                continue
            if after[key].get("required") and not parameter.get("required"):
                yield f"{name} is required now"
            yield from self._schemas.breaks(parameter["schema"], after[key]["schema"], self._asked, name)
        for key in after.keys() - before.keys():
            if after[key].get("required"):
                yield f"{where}: {key[0]} parameter {key[1]} is new and required"

    def _body(self, old: _Json, new: _Json, side: Side, where: str) -> Iterator[str]:
        before, after = _body(self._old, old), _body(self._new, new)
        if after.get("required") and not before.get("required"):
            yield f"{where}: a body is required now"
        if before:
            yield from self._content(before, after, side, f"{where}: body")

    def _answers(self, old: _Json, new: _Json, where: str) -> Iterator[str]:
        for status, described in old["responses"].items():
            if status not in new["responses"]:
                yield f"{where}: {status} is gone"
                continue
            before, after = resolved(self._old, described), resolved(self._new, new["responses"][status])
            for name in before.get("headers", {}).keys() - after.get("headers", {}).keys():
                yield f"{where}: {status} has no {name} any more"
            yield from self._content(before, after, self._answered, f"{where}: {status}")

    def _content(self, old: _Json, new: _Json, side: Side, where: str) -> Iterator[str]:
        before, after = old.get("content", {}), new.get("content", {})
        for media_type, medium in before.items():
            if media_type not in after:
                yield f"{where}: {media_type} is gone"
            elif "schema" in medium:
                yield from self._schemas.breaks(medium["schema"], after[media_type].get("schema", {}), side, where)


def _parameters(document: _Json, operation: _Json) -> dict[tuple[str, str], _Json]:
    """By place and name; the name of a header in lower case."""
    found = (resolved(document, one) for one in operation.get("parameters", ()))
    return {(one["in"], one["name"].lower() if one["in"] == "header" else one["name"]): one for one in found}


def _body(document: _Json, operation: _Json) -> _Json:
    return resolved(document, operation.get("requestBody", {}))
