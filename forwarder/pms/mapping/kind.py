"""Kinds of PMS that a page describes, with the class that the page names, if any."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from pydantic import BaseModel, Field, ValidationError, create_model

from forwarder.pms import sdk
from forwarder.pms.accounts import page_text
from forwarder.pms.mapping.adapter import MappedAdapter
from forwarder.pms.mapping.document import DocumentFault, load_document
from forwarder.pms.mapping.model import PmsMapping
from forwarder.pms.mapping.request import table_of
from forwarder.process.loading import load

_TOKEN_URL: Final = "tokenUrl"  # noqa: S105 - the name of an option


@dataclass(frozen=True, slots=True)
class MappedKind(sdk.Kind):
    """A kind that `mapping` describes."""

    mapping: PmsMapping


@cache
def shipped(kind: str) -> MappedKind:
    """The kind of that name. Raises `DocumentFault` for a mistake in this distribution."""
    try:
        mapping = load_document(page_text(kind), PmsMapping)
    except DocumentFault as fault:
        raise DocumentFault([f"{kind}.yaml, {one}" for one in fault.faults]) from fault
    fields: dict[str, Any] = {}
    for name, option in mapping.options.items():
        value = option.type_of_value()
        preset: Any = ... if option.required else {} if option.table else option.default
        optional = value if preset is not None else value | None
        fields[name] = (optional, Field(preset, alias=name, description=option.description))
    if any(one.oauth is not None and one.oauth.grant != "header" for one in mapping.auth):
        about = "Where tokens are requested, instead of the vendor's own address."
        fields["token_url"] = (str | None, Field(None, alias=_TOKEN_URL, description=about))
    options: type[BaseModel] = create_model("Options", __base__=sdk.NoOptions, **fields) if fields else sdk.NoOptions
    table = table_of(mapping, "no_rooms")  # the rules of the kind refuse another room before the adapter is called
    adapter_class: type[MappedAdapter] = MappedAdapter if mapping.code is None else load(mapping.code)

    def adapter(connection: sdk.AccountConnection, clock: sdk.Clock) -> sdk.Adapter:
        given = options.model_validate(connection.options).model_dump(by_alias=True, exclude_none=True)
        token_url = given.pop(_TOKEN_URL, None)
        made = adapter_class(connection, mapping, clock, given, token_url)
        made.table = table
        return made

    capabilities = mapping.capabilities(mapping.with_defaults({}))
    return MappedKind(adapter, options, capabilities, mapping.published_limits, table, mapping)


def mapping_of(kind: sdk.AdapterKind | None, options: Mapping[str, Any]) -> PmsMapping | None:
    """The mapping of an account of that kind with these options; None for a kind in code, or if it cannot be read."""
    if isinstance(kind, MappedKind):
        return kind.mapping
    if kind is None or "mapping" not in options:
        return None
    try:
        mapping = getattr(kind.options.model_validate(options), "mapping", None)
    except ValidationError:
        return None
    return mapping if isinstance(mapping, PmsMapping) else None
