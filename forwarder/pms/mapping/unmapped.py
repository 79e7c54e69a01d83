"""What a mapping names no field of the PMS for: it goes into the notes that the mapping sends. And the table of a mapping. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from forwarder.pms.fields import SPECIFIED, Fate, FieldTable, InNotes, LeftOut, Refused, SentAs, as_text, value_of
from forwarder.pms.guests import first_and_last, headcount
from forwarder.pms.mapping.format.fields import DERIVED, SAID, field_value
from forwarder.pms.mapping.format.model import PmsMapping
from forwarder.pms.mapping.format.operations import Create, notes_field
from forwarder.pms.mapping.format.parts import Source, placeholders
from forwarder.reservation.booking import Booking

_CARD: Final = ("cardDetails.", "card.")
_NAME: Final = "guest.name"
_OF_A_NAME: Final = {"guest.firstName", "guest.lastName"}

_IN_NOTES: Final = InNotes()
_HOW: Final = dict.fromkeys(("numberOfChildren", "numberOfInfants"), "counted among all guests")
_OTHER_ROOM: Final = Refused("room_not_found", "it is another")
_NOWHERE: Final = LeftOut("the mapping has no field for it, and none for notes")
_ON_PURPOSE: Final = LeftOut("the mapping leaves it out on purpose")
_NO_CARD: Final = LeftOut("sensitive: the mapping sends no card")
_STATUS: Final = LeftOut("says nothing more: what is sent is confirmed", lost=False)


def table_of(mapping: PmsMapping) -> FieldTable:
    """The table of an account with that mapping."""
    create = mapping.create
    targets = _targets(create)
    notes = notes_field(create)
    rest = _NOWHERE if notes is None else _IN_NOTES
    table = FieldTable({name: _fate(name, create, targets, rest) for name in SPECIFIED}, notes or "")
    if mapping.rooms:
        return table
    of_the_property = tuple(targets.get("propertyId", {"path": None}))
    return table.but({"roomId": SentAs(of_the_property, "is the property", otherwise=_OTHER_ROOM)})


def _fate(
    name: str, create: Create, targets: Mapping[str, Mapping[str, Source | None]], rest: InNotes | LeftOut
) -> Fate:
    ours = name.replace(*_CARD)
    if ours in targets:
        return _sent(ours, targets[ours], rest)
    if ours in create.left_out:
        return _ON_PURPOSE
    if ours in create.refused:
        return Refused("pms_refused", "it is given: the mapping refuses it")
    if name == "status":
        return _STATUS
    if name != ours:
        return _NO_CARD
    if name in _OF_A_NAME and _in_full(targets):
        return SentAs(tuple(targets[_NAME]), "in the full name, where that is not given", otherwise=rest)
    return rest


def _sent(ours: str, targets: Mapping[str, Source | None], rest: InNotes | LeftOut) -> SentAs:
    """`rest`: what becomes of it where every target takes another field of the booking."""
    sources = [source for source in targets.values() if source is not None]
    if any(ours in DERIVED.get(name, ()) for source in sources for name in source.field):
        names = {name for source in sources for name in source.field}
        how = "by its parts" if ours == _NAME else "" if ours in names else _HOW.get(ours, "")
        return SentAs(tuple(targets), how, otherwise=rest)
    before = [source.field[: source.field.index(ours)] for source in sources]
    always = len(before) < len(targets) or not all(before)
    if always:
        return SentAs(tuple(targets))
    return SentAs(tuple(targets), f"where the booking has no {' and no '.join(before[0])}", otherwise=rest)


def _in_full(targets: Mapping[str, Mapping[str, Source | None]]) -> bool:
    """Whether the full name is sent as it is."""
    return any(source is None or _NAME in source.field for source in targets.get(_NAME, {}).values())


def _targets(create: Create) -> dict[str, dict[str, Source | None]]:
    """Our fields → the PMS's names that each is sent under, with where their values come from."""
    targets: dict[str, dict[str, Source | None]] = {}
    for _, in_path in placeholders(create.path):
        if in_path is not None:
            targets.setdefault(in_path, {})["path"] = None
    for sources in (create.query, create.body):
        for theirs, source in sources.items():
            for ours in source.field:
                for said in DERIVED.get(ours, (ours,)):
                    targets.setdefault(said, {})[theirs] = source
    return targets


class Unmapped:
    """What of a booking finds no field of its own in one mapping."""

    def __init__(self, mapping: PmsMapping) -> None:
        self.table = table_of(mapping)
        self.notes = notes_field(mapping.create)
        self._targets = {
            ours: [source.field for source in found.values() if source is not None]
            for ours, found in _targets(mapping.create).items()
            if "path" not in found
        }
        derived = {name for forms in self._targets.values() for form in forms for name in form if name in DERIVED}
        self._in_full = _in_full(_targets(mapping.create))
        self._splits_names = bool(derived & {"guest.first", "guest.last"})
        self._counts_adults = "guests.adults" in derived
        self._refused = mapping.create.refused
        self._says_reference = mapping.create.reference_in_notes

    def added(self, values: Mapping[str, Any], booking: Booking) -> Mapping[str, Any]:
        """The `values` of a create's body, with what they do not say below its notes."""
        if self.notes is None:
            return values
        lines = self.table.lines(booking, self._unfit(booking))
        first = [f"Reference: {booking.reference}"] if self._says_reference else []
        if not lines and not first:
            return values
        own = values.get(self.notes)
        return {**values, self.notes: "\n".join([*first, *(() if own is None else (as_text(own),)), *lines])}

    def refused(self, booking: Booking) -> str:
        """The fields that the booking has, and the mapping refuses; empty where there is none."""
        return ", ".join(name for name in sorted(self._refused) if field_value(booking, name) not in (None, 0, ""))

    def _unfit(self, booking: Booking) -> dict[str, str | None]:
        """The fields that have a target, and lost it to another that comes first; and what names and counts by parts do not say."""
        unfit: dict[str, str | None] = dict.fromkeys(
            name for name, forms in self._targets.items() if not any(_says(form, name, booking) for form in forms)
        )
        if self._in_full:
            name = booking.guest_name.split()
            unfit |= dict.fromkeys(
                part for part in _OF_A_NAME if not set(str(value_of(booking, part)).split()) <= set(name)
            )
        elif self._splits_names:
            unfit |= first_and_last(booking)[2]
        if self._counts_adults:
            counted = headcount(booking, infants_are_children=False).unfit
            unfit |= {name: said for name, said in counted.items() if name == "numberOfAdults"}
        return unfit


def _says(form: tuple[str, ...], name: str, booking: Booking) -> bool:
    """Whether what is sent of these fields, which is the first that the booking has, says the field `name`."""
    sent = next((one for one in form if one == _NAME or field_value(booking, one) is not None), "")
    return name in SAID.get(sent, (sent,))
