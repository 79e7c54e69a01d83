"""Kind `generic`: the open contract, or whatever PMS the account's mapping describes."""

from typing import Final

from pydantic import Field

from forwarder.pms.adapter import Adapter, NoOptions
from forwarder.pms.kind import Kind
from forwarder.pms.kinds.generic.adapter import GenericAdapter
from forwarder.pms.mapping.adapter import MappedAdapter
from forwarder.pms.mapping.model import MappingOption
from forwarder.pms.port import AccountConnection
from forwarder.process.clock import Clock


class GenericOptions(NoOptions):
    """What an account of the kind may be set to."""

    mapping: MappingOption | None = Field(
        None,
        description="How the PMS is spoken to, as a table or as the text of a TOML document; without it, by the open contract.",
    )


def _adapter(connection: AccountConnection, clock: Clock) -> Adapter:
    mapping = GenericOptions.model_validate(connection.options).mapping
    return GenericAdapter(connection, clock) if mapping is None else MappedAdapter(connection, mapping, clock)


GENERIC: Final = Kind(_adapter, GenericOptions, GenericAdapter.capabilities, GenericAdapter.limits)
