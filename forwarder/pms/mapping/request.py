"""From a mapping and a booking to the request of one operation. Pure."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from pydantic_core import to_json

from forwarder.pms.fields import as_text
from forwarder.pms.http.client import Request, bearer, credential_header, path_segment
from forwarder.pms.http.errors import NotSent
from forwarder.pms.http.response import Headers
from forwarder.pms.mapping.fields import DoesNotFit, field_value, written
from forwarder.pms.mapping.json_path import assembled
from forwarder.pms.mapping.model import Create, Operation, PmsMapping
from forwarder.pms.mapping.parts import Auth, Source, Sources, placeholders
from forwarder.pms.mapping.unmapped import Unmapped
from forwarder.reservation.booking import Booking

_MEDIA_TYPES: Final = {"json": b"application/json", "form": b"application/x-www-form-urlencoded"}


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request is about. `pms_id`: the reservation to cancel; `page`: the page of a list to show."""

    booking: Booking
    pms_id: str | None = None
    page: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Requests:
    """Builds the requests of one account."""

    mapping: PmsMapping
    base_url: str
    credential: str
    unmapped: Unmapped

    def build(self, operation: Operation, asked: Asked) -> Request:
        """Raises `DoesNotFit`, and `NotSent` where base URL or credential cannot be used."""
        query = [*_texts(_values(operation.query, asked)), *_page(asked), *self._credential_in_query()]
        content = self._content(operation, asked)
        headers = [*self._headers(operation, asked)]
        if content:
            headers.append((b"Content-Type", _MEDIA_TYPES[operation.encoding]))
        url = self.base_url + _path(operation.path, asked)
        return Request(operation.method, url, headers, content, query=urlencode(query))

    def _headers(self, operation: Operation, asked: Asked) -> Headers:
        constant = {"accept": "application/json"} | {name.lower(): text for name, text in self.mapping.headers.items()}
        headers = [(name.encode(), text.encode()) for name, text in constant.items()]
        if isinstance(operation, Create) and operation.key_header is not None:
            headers.append((operation.key_header.encode(), asked.booking.reference.encode()))
        return [*headers, *_credential_header(self.mapping.auth, self.credential)]

    def _content(self, operation: Operation, asked: Asked) -> bytes:
        if not operation.body:
            return b""
        values = _values(operation.body, asked)
        if isinstance(operation, Create):
            values = self.unmapped.added(values, asked.booking)
        if operation.encoding == "form":
            return urlencode(_texts(values)).encode("ascii")
        return to_json(assembled(values))

    def _credential_in_query(self) -> Sequence[tuple[str, str]]:
        name = self.mapping.auth.name
        return [(name, self.credential)] if self.mapping.auth.form == "query" and name and self.credential else []


def _credential_header(auth: Auth, credential: str) -> Headers:
    if auth.form == "query" or not credential:
        return ()
    if auth.form == "basic":
        if ":" not in credential:
            raise NotSent("pms_credential_invalid", "The account's credential is not of the form user:password.")
        return ((b"Authorization", b"Basic " + b64encode(credential.encode())),)
    if auth.name is None:
        return bearer(credential)
    return credential_header(auth.name.encode(), credential)


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


def _values(sources: Sources, asked: Asked) -> Mapping[str, Any]:
    """What there is to send; what the booking does not have is left out."""
    values = {name: _value(source, asked) for name, source in sources.items()}
    return {name: value for name, value in values.items() if value is not None}


def _value(source: Source, asked: Asked) -> Any:
    if source.constant is not None:
        return source.constant
    for name in source.field:
        value = field_value(asked.booking, name, asked.pms_id)
        if value is not None:
            return written(asked.booking, name, value, source.written, source.date_format)
    return source.default


def _page(asked: Asked) -> Sequence[tuple[str, str]]:
    return () if asked.page is None else [(asked.page[0], str(asked.page[1]))]
