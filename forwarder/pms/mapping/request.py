"""Builds the request of an operation from a mapping and a booking. Pure."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import urlencode

from pydantic_core import to_json

from forwarder.pms.fields import as_text, value_of
from forwarder.pms.http.client import Request, path_segment
from forwarder.pms.http.response import Headers
from forwarder.pms.mapping.model import FromOption, PmsMapping
from forwarder.pms.mapping.operations import Create, Operation
from forwarder.pms.mapping.parts import Source, Sources, placeholders
from forwarder.pms.mapping.unmapped import Sent, Unmapped, cut
from forwarder.pms.mapping.values import PMS_GUEST_ID, SAID, DoesNotFit, assembled, field_value, moved, written
from forwarder.reservation.booking import Booking

_MEDIA_TYPES: Final = {"json": b"application/json", "form": b"application/x-www-form-urlencoded"}


@dataclass(frozen=True, slots=True)
class Asked:
    """The subject of a request. `pms_id` and `guest_id`: the PMS's ids of the reservation and the guest; `page`: the parameter
    for a page of a list."""

    booking: Booking
    pms_id: str | None = None
    page: tuple[str, str] | None = None
    guest_id: str | None = None


@dataclass(frozen=True, slots=True)
class Requests:
    """Builds the requests of one account, without authentication. `settings`: the options that it sets."""

    mapping: PmsMapping
    base_url: str
    unmapped: Unmapped
    settings: Mapping[str, Any] = field(default_factory=dict)

    def build(self, operation: Operation, asked: Asked) -> Request:
        """Raises `DoesNotFit`."""
        query = [*_texts(self._values(operation.query, asked)), *(() if asked.page is None else [asked.page])]
        content = self._content(operation, asked)
        headers = [*self._headers(operation, asked)]
        if content:
            headers.append((b"Content-Type", _MEDIA_TYPES[operation.encoding]))
        url = self.base_url + _path(operation.path, asked)
        return Request(operation.method, url, headers, content, query=urlencode(query))

    def _headers(self, operation: Operation, asked: Asked) -> Headers:
        named = {"accept": "application/json"}
        for name, given in self.mapping.headers.items():
            value = self.settings.get(given.option) if isinstance(given, FromOption) else given
            if value is not None:
                named[name.lower()] = as_text(value)
        headers = [(name.encode(), text.encode()) for name, text in named.items()]
        if isinstance(operation, Create) and operation.key_header is not None:
            headers.append((operation.key_header.encode(), asked.booking.reference.encode()))
        return headers

    def _content(self, operation: Operation, asked: Asked) -> bytes:
        if not operation.body:
            return b""
        values = self.values(operation, asked)
        if operation.encoding == "form":
            return urlencode(_texts(values)).encode("ascii")
        whole = assembled(values)
        return to_json([whole] if isinstance(operation, Create) and operation.as_list else whole)

    def values(self, operation: Operation, asked: Asked) -> Mapping[str, Any]:
        """The values of the body, by the PMS's names. Raises `DoesNotFit`."""
        sources, found = operation.body, self._found(operation.body, asked)
        notes = self.unmapped.notes if isinstance(operation, Create) else None
        if notes is not None:
            said = [*_kept(sources, found, {notes}).values(), *self._said_of_the_guest(asked)]
            text = self.unmapped.notes_with(said, asked.booking)
            found[notes] = Sent(text or None)
        return {name: one.value for name, one in _kept(sources, found).items()}

    def _said_of_the_guest(self, asked: Asked) -> Iterable[Sent]:
        guest = self.mapping.create.guest
        return () if guest is None else _kept(guest.body, self._found(guest.body, asked)).values()

    def notes(self, booking: Booking) -> str:
        """The notes of a create, wherever they are sent. Raises `DoesNotFit`."""
        sources = self.mapping.create.body
        said = _kept(sources, self._found(sources, Asked(booking)))
        return self.unmapped.notes_with(said.values(), booking)

    def _values(self, sources: Sources, asked: Asked) -> Mapping[str, Any]:
        """The values to send; what the booking does not have is left out."""
        return {name: one.value for name, one in _kept(sources, self._found(sources, asked)).items()}

    def _found(self, sources: Sources, asked: Asked) -> dict[str, Sent]:
        return {name: self._one(source, asked) for name, source in sources.items()}

    def _one(self, source: Source, asked: Asked) -> Sent:
        sent = self._own(source, asked)
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
        value: Any
        if source.option is not None:
            value = self.settings.get(source.option)
            if source.of is not None:
                value = (value or {}).get(as_text(field_value(booking, source.of)))
            return Sent(value)
        if source.join:
            parts = (field_value(booking, name) for name in source.join)
            text = ", ".join(as_text(part) for part in parts if part is not None)
            return cut(source, Sent(text or None, frozenset(source.join)))
        for name in source.field:
            value = asked.guest_id if name == PMS_GUEST_ID else field_value(booking, name, asked.pms_id)
            if value is not None:
                if source.add_days:
                    value = moved(value, source.add_days)
                value, whole = written(booking, name, value, source.written, source.date_format)
                if source.values and value is not None:
                    value = source.values.get(as_text(value))
                    whole = whole and value is not None
                if source.least is not None and isinstance(value, int | float):
                    value = max(value, source.least)
                return cut(source, Sent(value, frozenset(SAID.get(name, (name,))) if whole else frozenset()))
        return Sent(None)


def _kept(sources: Sources, found: Mapping[str, Sent], also: AbstractSet[str] = frozenset()) -> dict[str, Sent]:
    """The values to send after `needs` and `without` are applied. `also`: names that will have a value."""
    there = also | {name for name, one in found.items() if one.value is not None}
    return {
        name: found[name]
        for name, source in sources.items()
        if name in there and (source.needs is None or source.needs in there) and source.without not in there
    }


def _path(template: str, asked: Asked) -> str:
    path = ""
    for text, name in placeholders(template):
        path += text
        if name is not None:
            value = field_value(asked.booking, name, asked.pms_id)
            segment = None if value is None else path_segment(as_text(value))
            if segment is None:
                raise DoesNotFit(name, "a part of an address")
            path += segment
    return path


def _texts(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (name, as_text(one))
        for name, value in values.items()
        for one in (value if isinstance(value, list | tuple) else (value,))
    ]
