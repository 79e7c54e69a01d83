"""From a mapping and a booking to the request of one operation. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

from pydantic_core import to_json

from forwarder.pms.fields import as_text
from forwarder.pms.http.client import Request, path_segment
from forwarder.pms.http.response import Headers
from forwarder.pms.mapping.format.fields import DoesNotFit, field_value, moved, written
from forwarder.pms.mapping.format.json_path import assembled
from forwarder.pms.mapping.format.model import FromOption, PmsMapping
from forwarder.pms.mapping.format.operations import Create, Operation
from forwarder.pms.mapping.format.parts import Source, Sources, placeholders
from forwarder.pms.mapping.unmapped import Unmapped
from forwarder.reservation.booking import Booking

_MEDIA_TYPES: Final = {"json": b"application/json", "form": b"application/x-www-form-urlencoded"}


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request is about. `pms_id`: the one reservation that is meant; `page`: the parameter that says which part of a
    list."""

    booking: Booking
    pms_id: str | None = None
    page: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Requests:
    """Builds the requests of one account, without what lets them in. `settings`: the options that it sets."""

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
        values = self._values(operation.body, asked)
        if isinstance(operation, Create):
            values = self.unmapped.added(values, asked.booking)
        if operation.encoding == "form":
            return urlencode(_texts(values)).encode("ascii")
        return to_json(assembled(values))

    def _values(self, sources: Sources, asked: Asked) -> Mapping[str, Any]:
        """What there is to send; what the booking does not have is left out."""
        values = {name: self._value(source, asked) for name, source in sources.items()}
        return {name: value for name, value in values.items() if value is not None}

    def _value(self, source: Source, asked: Asked) -> Any:
        if source.constant is not None:
            return source.constant
        if source.option is not None:
            return self.settings.get(source.option, source.default)
        if source.json_text is not None:
            return to_json(assembled(self._values(source.json_text, asked))).decode()
        for name in source.field:
            value = field_value(asked.booking, name, asked.pms_id)
            if value is not None:
                if source.add_days:
                    value = moved(value, source.add_days)
                return written(asked.booking, name, value, source.written, source.date_format)
        return source.default


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
    return [(name, as_text(value)) for name, value in values.items()]
