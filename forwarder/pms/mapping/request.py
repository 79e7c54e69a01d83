"""What is sent of a booking under a mapping: the table of its fields, the requests, and notes for the rest. Pure."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlencode

from pydantic_core import to_json

from forwarder.pms import sdk
from forwarder.pms.fields import as_text, value_of
from forwarder.pms.mapping.access import MEDIA_TYPES
from forwarder.pms.mapping.model import FromOption, PmsMapping
from forwarder.pms.mapping.operations import Create, MappedOperation
from forwarder.pms.mapping.parts import Source, Sources, names_in, placeholders
from forwarder.pms.mapping.values import DERIVED, PMS_GUEST_ID, SAID, DoesNotFit, assembled, field_value, written

_NAME: Final = "guest.name"
_NOTES: Final = ("notes", "comments")
_CUT: Final = " […]"
_OF_A_NAME: Final = frozenset({"guest.firstName", "guest.lastName"})
_OF_ITS_ROOM: Final = sdk.LeftOut("the room is its own", lost=False)


# --- the field table ---

_Targets = dict[str, dict[str, Source | None]]
"""Our fields → the PMS's names that each is sent under, with their sources (None in the path)."""


def table_of(mapping: PmsMapping, other_room: str = "room_not_found") -> sdk.FieldTable:
    """The field table of a mapping. `other_room`: the refusal's code of a room that is not the property, if there are no rooms."""
    create = mapping.create
    targets = _targets(create)
    notes = create.notes_field
    rest = sdk.LeftOut("the mapping has no field for it, and none for notes") if notes is None else sdk.InNotes()
    table = sdk.FieldTable({name: _fate(name, create, targets, rest) for name in sdk.SPECIFIED}, notes or "")
    if mapping.rooms:
        return table
    of_the_property = tuple(targets.get("propertyId", {"path": None}))
    refused = sdk.Refused(other_room, "it is another")
    return table.but({"roomId": sdk.SentAs(of_the_property, "is the property", otherwise=refused)})


def _fate(name: str, create: Create, targets: _Targets, rest: sdk.InNotes | sdk.LeftOut) -> sdk.Fate:
    ours = name.replace("cardDetails.", "card.")
    if ours in targets:
        return _sent(ours, targets[ours], rest, create)
    if ours in create.left_out:
        if ours != "propertyId":
            return sdk.LeftOut("the mapping leaves it out on purpose")
        rooms = tuple(targets.get("roomId", ()))  # they alone are sent
        return sdk.SentAs(rooms, "where no room is named", otherwise=_OF_ITS_ROOM) if rooms else _OF_ITS_ROOM
    if name == "status":
        return sdk.LeftOut("not needed: every reservation sent is confirmed", lost=False)
    if name != ours:
        return sdk.LeftOut("sensitive: the mapping sends no card")
    if name in _OF_A_NAME and _in_full(targets):
        return sdk.SentAs(tuple(targets[_NAME]), "in the full name, where that is not given", otherwise=rest)
    return rest


def _sent(ours: str, targets: Mapping[str, Source | None], rest: sdk.InNotes | sdk.LeftOut, create: Create) -> sdk.Fate:
    """`rest`: what becomes of it where no target takes it."""
    sources = [source for source in targets.values() if source is not None]
    if any(ours in DERIVED.get(name, ()) for source in sources for name in source.field):
        names = {name for source in sources for name in source.field}
        if ours == "numberOfInfants" and "guests.children" in names and isinstance(rest, sdk.InNotes):
            return sdk.InNotes("and counted as children", also=tuple(targets))
        counted = "counted among all guests" if ours in ("numberOfChildren", "numberOfInfants") else ""
        how = "by its parts" if ours == _NAME else "" if ours in names else counted
        return sdk.SentAs(tuple(targets), how, otherwise=rest)
    if len(sources) < len(targets):
        return sdk.SentAs(tuple(targets))
    before = [source.field[: source.field.index(ours)] if ours in source.field else () for source in sources]
    other = f"where the booking has no {' and no '.join(before[0])}" if all(before) else ""
    how = next(filter(None, (other, *(_how(source, ours) for source in sources))), "")
    may_not_fit = ("hour", "clockTime", "country")
    partly = all(  # sources that may leave out a value, or a part of it
        names or one.written in may_not_fit or one.values or one.needs or one.without or one.if_longer == "notes"
        for names, one in zip(before, sources, strict=True)
    )
    chosen = any(name in create.body and create.body[name].option is not None for name in targets)
    return sdk.SentAs(tuple(targets), how, otherwise=rest if partly or chosen else None)


def _how(source: Source, ours: str) -> str:
    if source.needs is not None:
        return f"with {source.needs}"
    if source.max_length is not None and source.if_longer == "cut":
        return f"cut after {source.max_length} characters, visibly"
    if ours in source.join[1:]:
        return f"after {source.join[0]}"
    if source.values:
        return "by a table of values"
    return {"hour": "the hour", "country": "as a code"}.get(source.written or "", "")


def _in_full(targets: _Targets) -> bool:
    return any(source is None or _NAME in source.field for source in targets.get(_NAME, {}).values())


def _targets(create: Create) -> _Targets:
    targets: _Targets = {}
    for _, in_path in placeholders(create.path):
        if in_path is not None:
            targets.setdefault(in_path, {})["path"] = None
    of_guest = {} if create.guest is None else create.guest.body
    for theirs, source in (*create.query.items(), *create.body.items(), *of_guest.items()):
        for one in source.inner:
            for ours in one.fields:
                for said in DERIVED.get(ours, (ours,)):
                    targets.setdefault(said, {})[theirs] = one
    return targets


@dataclass(frozen=True, slots=True)
class Sent:
    """A value that is sent, None for none; and the fields of the booking that it expresses completely."""

    value: Any
    says: frozenset[str] = frozenset()


def _shortened_to(most: int, text: str) -> str:
    return text if len(text) <= most else text[: most - len(_CUT)] + _CUT


@dataclass(frozen=True, slots=True)
class Asked:
    """The subject of a request. `pms_id`, `guest_id`: the PMS's ids; `page`: the parameter for a page of a list."""

    booking: sdk.Booking
    pms_id: str | None = None
    page: tuple[str, str] | None = None
    guest_id: str | None = None


class Requests:
    """Builds an account's requests, without authentication. `settings`: its options. `table`: how each field is sent."""

    def __init__(self, mapping: PmsMapping, base_url: str, settings: Mapping[str, Any]) -> None:
        self._mapping, self.base_url, self._settings = mapping, base_url, settings
        self.table = table_of(mapping)
        self._notes = mapping.create.notes_field
        guest = mapping.create.guest
        sent = names_in(mapping.create.body) | (frozenset() if guest is None else names_in(guest.body))
        self._most = None if self._notes is None else mapping.create.body[self._notes].max_length
        first = () if self._notes is None else mapping.create.body[self._notes].field
        self._own_names = tuple(dict.fromkeys((*(name for name in first if name in _NOTES), *_NOTES)))
        self._targeted = {said for ours in sent for said in DERIVED.get(ours, (ours,))}
        self._derived = sent & DERIVED.keys()
        self._in_full = _in_full(_targets(mapping.create))
        headers = {"accept": "application/json"}
        for name, given in mapping.headers.items():
            value = settings.get(given.option) if isinstance(given, FromOption) else given
            if value is not None:
                headers[name.lower()] = as_text(value)
        self._headers = [(name.encode(), text.encode()) for name, text in headers.items()]

    def build(self, operation: MappedOperation, asked: Asked) -> sdk.Request:
        """Raises `DoesNotFit`."""
        kept = _kept(operation.query, self._found(operation.query, asked))
        query = [*_texts({name: one.value for name, one in kept.items()}), *([asked.page] if asked.page else [])]
        path = ""
        for text, name in placeholders(operation.path):
            path += text
            if name is not None:
                value = field_value(asked.booking, name, asked.pms_id)
                segment = None if value is None else sdk.path_segment(as_text(value))
                if segment is None:
                    raise DoesNotFit(name, "a part of an address")
                path += segment
        content, sources, found = b"", operation.body, self._found(operation.body, asked)
        if isinstance(operation, Create) and self._notes is not None:
            guest = {} if operation.guest is None else operation.guest.body
            of_guest = _kept(guest, self._found(guest, asked))
            notes = self._notes_with(asked.booking, _kept(sources, found, {self._notes}), of_guest)
            found[self._notes] = Sent(notes or None)
        values = {name: one.value for name, one in _kept(sources, found).items()}
        if sources and operation.encoding == "form":
            content = urlencode(_texts(values)).encode("ascii")
        elif sources:
            whole = assembled(values)
            content = to_json([whole] if isinstance(operation, Create) and operation.as_list else whole)
        headers = list(self._headers)
        if isinstance(operation, Create) and operation.key_header is not None:
            headers.append((operation.key_header.encode(), asked.booking.reference.encode()))
        if content:
            headers.append((b"Content-Type", MEDIA_TYPES[operation.encoding]))
        return sdk.Request(operation.method, self.base_url + path, headers, content, query=urlencode(query))

    def notes(self, booking: sdk.Booking) -> str:
        sources = self._mapping.create.body
        return self._notes_with(booking, _kept(sources, self._found(sources, Asked(booking))))

    def _found(self, sources: Sources, asked: Asked) -> dict[str, Sent]:
        return {name: self._one(source, asked) for name, source in sources.items()}

    def _one(self, source: Source, asked: Asked) -> Sent:
        sent, most = self._own(source, asked), source.max_length
        if most is not None and sent.value is not None and len(text := as_text(sent.value)) > most:
            sent = Sent(None) if source.if_longer == "notes" else Sent(_shortened_to(most, text), sent.says)
        if sent.value is None and source.otherwise is not None:
            instead = self._one(source.otherwise, asked)
            sent = replace(instead, says=instead.says | sent.says)
        if sent.value is None and source.default is not None:
            return replace(sent, value=source.default)
        if source.option is not None and source.otherwise is not None:  # a field whose value may be the same
            same = {name for name in source.otherwise.fields if as_text(value_of(asked.booking, name)) == sent.value}
            return replace(sent, says=sent.says | same)
        return sent

    def _own(self, source: Source, asked: Asked) -> Sent:
        booking = asked.booking
        if source.constant is not None:
            return Sent(source.constant)
        if source.option is not None:
            value: Any = self._settings.get(source.option)
            of = source.of
            return Sent(value if of is None else (value or {}).get(as_text(field_value(booking, of))))
        if source.join:
            parts = (field_value(booking, name) for name in source.join)
            text = ", ".join(as_text(part) for part in parts if part is not None)
            return Sent(text or None, frozenset(source.join))
        for name in source.field:
            value = asked.guest_id if name == PMS_GUEST_ID else field_value(booking, name, asked.pms_id)
            if value is not None:
                if source.add_days:
                    day = booking.arrival if name == "arrivalDate" else booking.departure
                    value = sdk.days_later(day, source.add_days).isoformat()
                value, whole = written(booking, name, value, source.written, source.date_format)
                if source.values and value is not None:
                    value = source.values.get(as_text(value))
                    whole = whole and value is not None
                if source.least is not None and isinstance(value, int | float):
                    value = max(value, source.least)
                return Sent(value, frozenset(SAID.get(name, (name,)) if whole else ()))
        return Sent(None)

    def _notes_with(self, booking: sdk.Booking, *sent: Mapping[str, Sent]) -> str:
        """The caller's notes, and below them what `sent` does not express. If all is too long for the PMS, the caller's are cut."""
        said = {name for values in sent for one in values.values() for name in one.says}
        # The fields that are sent incompletely, each with what the notes say in place of its value.
        unfit: dict[str, str | None] = dict.fromkeys(self._targeted - said - {*_NOTES})
        if self._in_full:
            whole, parts = set(booking.guest_name.split()), _OF_A_NAME - said
            unfit |= {part: None for part in parts if not set(str(value_of(booking, part)).split()) <= whole}
        elif self._derived & {"guest.first", "guest.last"}:
            unfit |= sdk.first_and_last(booking)[2]
        if "guests.children" in self._derived:
            for name in ("numberOfGuests", "numberOfAdults", "numberOfInfants"):
                unfit.pop(name, None)
            unfit |= sdk.headcount(booking, infants_are_children=True).unfit
        elif "guests.adults" in self._derived:
            counted = sdk.headcount(booking, infants_are_children=False).unfit
            unfit |= {name: counted[name] for name in counted if name == "numberOfAdults"}
        first = [f"Reference: {booking.reference}"] if self._mapping.create.reference_in_notes else []
        own = []
        for name in self._own_names:  # the caller's own texts that go into these notes
            fate, text = self.table.fates[name], value_of(booking, name)
            here = isinstance(fate, sdk.InNotes) or (isinstance(fate, sdk.SentAs) and self._notes in fate.names)
            own += [as_text(text)] if here and text is not None else []
        lines = [line for line in self.table.lines(booking, unfit) if line not in own]
        if self._most is None:
            return "\n".join([*first, *own, *lines])
        below = _shortened_to(self._most, "\n".join(lines))
        above = _shortened_to(max(self._most - len(below) - 1, len(_CUT)), "\n".join([*first, *own]))
        return "\n".join(part for part in (above, below) if part)[: self._most]


def _kept(sources: Sources, found: Mapping[str, Sent], also: AbstractSet[str] = frozenset()) -> dict[str, Sent]:
    """The values to send after `needs` and `without` are applied. `also`: names that will have a value."""
    there = also | {name for name, one in found.items() if one.value is not None}
    return {
        name: found[name]
        for name, source in sources.items()
        if name in there and (source.needs is None or source.needs in there) and source.without not in there
    }


def _texts(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    listed = {name: value if isinstance(value, list | tuple) else (value,) for name, value in values.items()}
    return [(name, as_text(one)) for name, each in listed.items() for one in each]
