"""How a mapped PMS shows a reservation, in its answers to a create and to a look-up alike. Checked as it is loaded."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from forwarder.pms.mapping.json_path import JsonPath
from forwarder.pms.mapping.parts import Table, Text, nonsense

RecordName = Literal[
    "source",
    "notes",
    "paymentUrl",
    "totalPrice",
    "currency",
    "accessCode",
    "finances.totalPrice",
    "finances.currency",
    "finances.totalPaid",
    "finances.remainingBalance",
    "finances.basePrice",
    "finances.fee",
    "finances.tax",
    "finances.discount",
]
"""What of the record (section 2.5) can be mapped. A base price, fee, tax or discount is a sum, which becomes one line."""


class States(Table):
    """The PMS's words for where a reservation stands, in any case of letters. Any other word decides nothing."""

    path: JsonPath
    """Where the word is."""
    confirmed: Annotated[frozenset[Text], Field(min_length=1)]
    """The words for one that stands."""
    cancelled: frozenset[Text] = frozenset()
    """The words for one that was cancelled."""
    refused: frozenset[Text] = frozenset()
    """The words for one that was never made."""

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        words = [word.casefold() for part in (self.confirmed, self.cancelled, self.refused) for word in part]
        if len(words) != len(set(words)):
            raise nonsense("a word stands for one of confirmed, cancelled and refused")
        return self


class Shown(Table):
    """A reservation as the PMS shows it: paths from where it begins."""

    id: JsonPath = "id"
    """The PMS's id."""
    reference: JsonPath | None = None
    """Our reference, as it was sent."""
    status: States | None = None
    """Where it stands."""
    record: Mapping[RecordName, JsonPath] = Field(default_factory=dict)
    """What of it goes into the record."""
