"""What a mapping names no field of the PMS for: it goes into the notes that the mapping sends. And the table of a mapping. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from forwarder.pms.fields import SPECIFIED, Fate, FieldTable, InNotes, LeftOut, SentAs, as_text, value_of
from forwarder.pms.mapping.model import Create, PmsMapping
from forwarder.pms.mapping.parts import Source, placeholders
from forwarder.reservation.booking import Booking

_NOTES: Final = ("notes", "comments")
_CARD: Final = ("cardDetails.", "card.")
_NAME: Final = "guest.name"
_OF_A_NAME: Final = {"guest.firstName", "guest.lastName"}

_IN_NOTES: Final = InNotes()
_NOWHERE: Final = LeftOut("the mapping has no field for it, and none for notes")
_ON_PURPOSE: Final = LeftOut("the mapping leaves it out on purpose")
_NO_CARD: Final = LeftOut("sensitive: the mapping sends no card")
_STATUS: Final = LeftOut("says nothing more: what is sent is confirmed", lost=False)


def notes_field(create: Create) -> str | None:
    """The PMS's name of what takes notes: the field of the body that takes the caller's notes, or else the comments, as a text."""
    for name in _NOTES:
        for theirs, source in create.body.items():
            if source.field[:1] == (name,) and source.written in (None, "text"):
                return theirs
    return None


def table_of(mapping: PmsMapping) -> FieldTable:
    """The table of an account with that mapping."""
    create = mapping.create
    targets = _targets(create)
    notes = notes_field(create)
    rest = _NOWHERE if notes is None else _IN_NOTES
    return FieldTable({name: _fate(name, create, targets, rest) for name in SPECIFIED}, notes or "")


def _fate(
    name: str, create: Create, targets: Mapping[str, Mapping[str, Source | None]], rest: InNotes | LeftOut
) -> Fate:
    ours = name.replace(*_CARD)
    if ours in targets:
        return _sent(ours, targets[ours], rest)
    if ours in create.left_out:
        return _ON_PURPOSE
    if name == "status":
        return _STATUS
    if name != ours:
        return _NO_CARD
    if name in _OF_A_NAME and _NAME in targets:
        return SentAs(tuple(targets[_NAME]), "in the full name, where that is not given", otherwise=rest)
    return rest


def _sent(ours: str, targets: Mapping[str, Source | None], rest: InNotes | LeftOut) -> SentAs:
    """`rest`: what becomes of it where every target takes another field of the booking."""
    before = [source.field[: source.field.index(ours)] for source in targets.values() if source is not None]
    always = len(before) < len(targets) or not all(before)
    if always:
        return SentAs(tuple(targets))
    return SentAs(tuple(targets), f"where the booking has no {' and no '.join(before[0])}", otherwise=rest)


def _targets(create: Create) -> dict[str, dict[str, Source | None]]:
    """Our fields → the PMS's names that each is sent under, with where their values come from."""
    targets: dict[str, dict[str, Source | None]] = {}
    for _, in_path in placeholders(create.path):
        if in_path is not None:
            targets.setdefault(in_path, {})["path"] = None
    for sources in (create.query, create.body):
        for theirs, source in sources.items():
            for ours in source.field:
                targets.setdefault(ours, {})[theirs] = source
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
        self._splits_names = _NAME not in self._targets

    def added(self, values: Mapping[str, Any], booking: Booking) -> Mapping[str, Any]:
        """The `values` of a create's body, with what they do not say below its notes."""
        lines = self.table.lines(booking, self._unfit(booking)) if self.notes is not None else ()
        if self.notes is None or not lines:
            return values
        own = values.get(self.notes)
        return {**values, self.notes: "\n".join([*(() if own is None else (as_text(own),)), *lines])}

    def _unfit(self, booking: Booking) -> dict[str, str | None]:
        """The fields that have a target, and lost it to another that comes first; and parts of a name that is sent without them."""
        lost = [
            name for name, forms in self._targets.items() if not any(_first(form, booking) == name for form in forms)
        ]
        if not self._splits_names:
            name = booking.guest_name.split()
            lost += [part for part in _OF_A_NAME if not set(str(value_of(booking, part)).split()) <= set(name)]
        return dict.fromkeys(lost)


def _first(names: tuple[str, ...], booking: Booking) -> str:
    """Which of them is sent."""
    given = (name for name in names if name == _NAME or value_of(booking, name) is not None)
    return next(given, "")
