"""What the contracts take from the code: JSON Schemas (2020-12) of the models that requests are validated with, and lists."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from forwarder.notifier.api_requests import NewWebhook, Rotation, WebhookChange
from forwarder.pms.http.outcomes import REFUSALS
from forwarder.pms.kinds.generic import KEY_REUSED, NOT_THERE, NOTHING_DONE, STILL_WORKING
from forwarder.reservation.checks.fields import BookingEngineItem, GeneralItem
from forwarder.reservation.outcome import FAILURE_CLASSES, CancellationBody, CancellationStatus, Status
from forwarder.reservation.problems import CATALOGUE
from forwarder.reservation.record import RESULT_TYPES
from forwarder.reservation.request import CURRENCY, CURRENCY_DECIMALS, BookingEngineRequest, GeneralRequest
from forwarder.store.deliveries import DeliveryStatus
from forwarder.tenancy.port import Disabled
from tools.contracts.pages.guides import guide_names
from tools.contracts.schema_changes import EXACT, OR_EMPTY

REF: Final = "#/components/schemas/"
_MODELS: Final[Sequence[Any]] = (
    *(BookingEngineRequest, GeneralRequest, CancellationBody, BookingEngineItem, GeneralItem),
    *(NewWebhook, WebhookChange, Rotation),
    *(Status, CancellationStatus, DeliveryStatus, Disabled),
)
_NAMES: Final = {"BookingEngineRequest": "BookingEngineReservation", "GeneralRequest": "GeneralReservation"}
"""Models that are published under another name: the one that the clients use."""


class Mismatch(Exception):
    """A written contract and the code differ. The message says where."""


@cache
def lists() -> dict[str, Any]:
    """The lists that a contract may name in `x-from`."""
    return {
        "currencies": sorted(CURRENCY_DECIMALS),
        "delivery statuses": [*DeliveryStatus],
        "failure classes": FAILURE_CLASSES,
        "guides": guide_names(),
        "PMS problem codes": [*REFUSALS, STILL_WORKING, KEY_REUSED, NOT_THERE, NOTHING_DONE],
        "problem codes": [*CATALOGUE],
        "result types": RESULT_TYPES,
        "statuses": [*Status],
    }


def model_schemas(
    written: Mapping[str, Any], words: Mapping[str, str], mode: JsonSchemaMode = "validation"
) -> dict[str, Any]:
    """The schema of each model and of each part of one, by name, as it is read (`validation`) or written (`serialization`).
    `written` says what each is, `words` what each field is. Raises `Mismatch` where they do not fit."""
    parts: dict[str, Any] = {}
    for model in _MODELS:
        parts[_NAMES.get(model.__name__, model.__name__)] = schema_of(model, parts, mode)
    here = {name for name, schema in written.items() if schema.get("x-model")}
    if here ^ parts.keys():
        raise Mismatch(f"`x-model` must be said of each model, and of nothing else: {', '.join(here ^ parts.keys())}.")
    described = {name: _described(name, schema, written[name], words) for name, schema in parts.items()}
    fields = {field for schema in parts.values() for field in schema.get("properties", {})}
    if unused := words.keys() - fields:
        raise Mismatch(f"`x-fields` describes fields that no model has: {', '.join(sorted(unused))}.")
    return described


def schema_of(model: Any, parts: dict[str, Any], mode: JsonSchemaMode = "validation") -> dict[str, Any]:
    """The schema of `model`. Those that it refers to are added to `parts`."""
    made = TypeAdapter(model).json_schema(by_alias=True, ref_template=REF + "{model}", mode=mode)
    schema: dict[str, Any] = _tidy(made)
    parts |= {_NAMES.get(name, name): part for name, part in schema.pop("$defs", {}).items()}
    return schema


def _described(
    name: str, schema: Mapping[str, Any], said: Mapping[str, Any], words: Mapping[str, str]
) -> dict[str, Any]:
    described = {**_plain(schema), **{key: value for key, value in said.items() if key != "x-model"}}
    if "properties" in schema:
        fields = described["properties"]
        if missing := [field for field in fields if "description" not in fields[field] and field not in words]:
            raise Mismatch(f"schemas/openapi.yaml: `x-fields` does not describe {name}.{missing[0]}.")
        described["properties"] = {field: {"description": words.get(field), **rest} for field, rest in fields.items()}
    return described


def _tidy(schema: Any) -> Any:
    """Without the titles that pydantic makes of names, without defaults of null, which say nothing, and without bounds that readers
    take for other numbers: beyond 2^53 numbers are whole, so an exclusive bound is an inclusive one."""
    if isinstance(schema, list):
        return [_tidy(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("$ref", "").removeprefix(REF) in _NAMES:
        schema = {**schema, "$ref": REF + _NAMES[schema["$ref"].removeprefix(REF)]}
    noise = {"title"} if isinstance(schema.get("title"), str) else set()
    if schema.get("default", "") is None:
        noise.add("default")
    for exclusive, inclusive, step in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
        if exclusive in schema and abs(schema[exclusive]) > EXACT:
            schema = {**schema, inclusive: int(schema[exclusive]) + step}
            del schema[exclusive]
    return {name: _tidy(part) for name, part in schema.items() if name not in noise}


def _plain(schema: Any) -> Any:
    """The same, plainer: one kind of number where any will do, one kind of text where an empty one will do, and the currencies by
    reference."""
    if isinstance(schema, list):
        return [_plain(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("pattern") == CURRENCY:
        return {"$ref": f"{REF}Currency"}
    branches = schema.get("anyOf", [])
    if "number" in [branch.get("type") for branch in branches]:
        schema = {**schema, "anyOf": [branch for branch in branches if branch.get("type") != "integer"]}
    if _EMPTY in branches and any("minLength" in branch for branch in branches):
        schema = {**schema, "anyOf": [_or_empty(branch) for branch in branches if branch != _EMPTY]}
    return {name: _plain(part) for name, part in schema.items()}


_EMPTY: Final = {"const": "", "type": "string"}


def _or_empty(branch: dict[str, Any]) -> dict[str, Any]:
    """A schema of texts, which takes the empty one as well. Others stay as they are."""
    if branch.get("type") != "string":
        return branch
    rest = {name: value for name, value in branch.items() if name != "minLength"}
    return {**rest, "pattern": OR_EMPTY + branch["pattern"]}
