"""Kinds of PMS that are a mapping and nothing else: a YAML file of `forwarder.pms.kinds.mapped` each, named as the kind."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

from pydantic import BaseModel, Field, create_model

from forwarder.pms.adapter import Adapter, Kind, NoOptions
from forwarder.pms.fields import FieldTable, Refused, SentAs
from forwarder.pms.mapping.adapter import MappedAdapter
from forwarder.pms.mapping.format.document import DocumentFault, load_document
from forwarder.pms.mapping.format.model import PmsMapping
from forwarder.pms.mapping.unmapped import table_of
from forwarder.pms.port import AccountConnection
from forwarder.process.clock import Clock

_PLACE: Final = "forwarder.pms.kinds.mapped"
_TOKEN_URL: Final = "tokenUrl"  # noqa: S105 - the name of an option


class BadMapping(ValueError):
    """A shipped mapping that cannot be read: a mistake in this distribution."""


@dataclass(frozen=True, slots=True)
class MappedKind(Kind):
    """A kind that `mapping` describes."""

    mapping: PmsMapping


def text_of(name: str) -> str:
    """The YAML document of that kind."""
    return files(_PLACE).joinpath(f"{name}.yaml").read_text(encoding="utf-8")


@cache
def shipped(name: str) -> MappedKind:
    """The kind of that name. Raises `BadMapping`."""
    try:
        return kind_of(load_document(text_of(name), PmsMapping))
    except DocumentFault as fault:
        raise BadMapping("; ".join(f"{name}.yaml, {one}" for one in fault.faults)) from fault


def kind_of(mapping: PmsMapping) -> MappedKind:
    """The kind whose accounts are all spoken to by `mapping`."""
    options, table = _options_of(mapping), _table_of(mapping)

    def adapter(connection: AccountConnection, clock: Clock) -> Adapter:
        given = options.model_validate(connection.options).model_dump(by_alias=True, exclude_none=True)
        token_url = given.pop(_TOKEN_URL, None)
        made = MappedAdapter(connection, mapping, clock, given, token_url)
        made.fields = table
        return made

    return MappedKind(adapter, options, mapping.capabilities, mapping.published_limits, table, mapping)


def _table_of(mapping: PmsMapping) -> FieldTable:
    """That of the mapping. A room that is not the property is refused by the rules of the kind, before its adapter is asked."""
    table = table_of(mapping)
    room = table.fates["roomId"]
    if mapping.rooms or not isinstance(room, SentAs):
        return table
    return table.but({"roomId": SentAs(room.names, room.how, otherwise=Refused("no_rooms", "it is another"))})


def _options_of(mapping: PmsMapping) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for name, option in mapping.options.items():
        preset = ... if option.required else option.default
        value = str | int | float | bool if option.required else str | int | float | bool | None
        fields[name] = (value, Field(preset, alias=name, description=option.description))
    if mapping.auth.oauth is not None:
        about = "Where tokens are asked for, in place of the vendor's own address."
        fields["token_url"] = (str | None, Field(None, alias=_TOKEN_URL, description=about))
    return create_model("Options", __base__=NoOptions, **fields) if fields else NoOptions
