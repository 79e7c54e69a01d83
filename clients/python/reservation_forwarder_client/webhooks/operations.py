"""Managing webhooks as steps: what each operation asks for, and how it reads the answers. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

from reservation_forwarder_client.problems import Unexpected
from reservation_forwarder_client.requests import Answer, ApiRequest, Exchange, RetryPolicy, Steps, Time
from reservation_forwarder_client.webhooks.records import (
    NewWebhook,
    Webhook,
    WebhookChange,
    WebhookDelivery,
    WebhookWithSecret,
)
from reservation_forwarder_client.wire import Malformed, camel_case, json_bytes, read

_WEBHOOKS: Final = "/api/v1/vrs/webhooks"
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Listed(Generic[_Item]):
    """A page of a list, and where the next one begins; empty after the last."""

    items: Sequence[_Item]
    next: str


class WebhookOperations:
    """The operations of a workspace's webhooks."""

    def __init__(self, retry_policy: RetryPolicy, time: Time) -> None:
        self._exchange = Exchange(retry_policy, time)

    def add(self, url: str, more: NewWebhook) -> Steps[WebhookWithSecret]:
        """Add one."""
        body = camel_case({"url": url, **more})
        return _with_secret((yield from self._send("POST", _WEBHOOKS, body, repeatable=False)))

    def page(self, page_size: int, cursor: str) -> Steps[Listed[Webhook]]:
        """The webhooks, from `cursor` on."""
        return _listed((yield from self._read(_WEBHOOKS, _page(cursor, page_size))), Webhook)

    def get(self, webhook_id: str) -> Steps[Webhook]:
        """One of them."""
        return _one((yield from self._read(_path(webhook_id))), Webhook)

    def change(self, webhook_id: str, change: WebhookChange) -> Steps[Webhook]:
        """What is named is changed."""
        return _one((yield from self._send("PATCH", _path(webhook_id), camel_case(change))), Webhook)

    def remove(self, webhook_id: str) -> Steps[None]:
        """Remove it."""
        yield from self._send("DELETE", _path(webhook_id))

    def rotate(self, webhook_id: str, overlap_seconds: int | None) -> Steps[WebhookWithSecret]:
        """Make it a new secret."""
        body = {} if overlap_seconds is None else {"overlapSeconds": overlap_seconds}
        return _with_secret((yield from self._send("POST", _path(webhook_id, "rotate"), body, repeatable=False)))

    def test(self, webhook_id: str) -> Steps[int]:
        """Send it a test event."""
        answer = yield from self._send("POST", _path(webhook_id, "test"), repeatable=False)
        return _one(answer, _Queued).delivery_id

    def deliveries(
        self, webhook_id: str, status: str | None, page_size: int, cursor: str
    ) -> Steps[Listed[WebhookDelivery]]:
        """Its deliveries, from `cursor` on."""
        query = _page(cursor, page_size) | ({"status": status} if status else {})
        return _listed((yield from self._read(_path(webhook_id, "deliveries"), query)), WebhookDelivery)

    def delivery(self, webhook_id: str, delivery_id: int) -> Steps[WebhookDelivery]:
        """One of its deliveries."""
        return _one((yield from self._read(_path(webhook_id, "deliveries", str(delivery_id)))), WebhookDelivery)

    def resend(self, webhook_id: str, delivery_id: int) -> Steps[WebhookDelivery]:
        """Deliver it once more."""
        path = _path(webhook_id, "deliveries", str(delivery_id), "resend")
        return _one((yield from self._send("POST", path)), WebhookDelivery)

    def _read(self, path: str, query: Mapping[str, str] | None = None) -> Steps[Answer]:
        return self._exchange.answer(ApiRequest("GET", path, {}, query or {}))

    def _send(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, repeatable: bool = True
    ) -> Steps[Answer]:
        content = None if body is None else json_bytes(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        return self._exchange.answer(ApiRequest(method, path, headers, content=content, repeatable=repeatable))


@dataclass(frozen=True, slots=True)
class _Queued:
    delivery_id: int


@dataclass(frozen=True, slots=True)
class _Secret:
    secret: str
    public_key: str | None = None


def _path(*parts: str) -> str:
    return "/".join((_WEBHOOKS, *(quote(part, safe="") for part in parts)))


def _page(cursor: str, page_size: int) -> dict[str, str]:
    return {"limit": str(page_size)} | ({"cursor": cursor} if cursor else {})


def _one(answer: Answer, shape: type[_Item]) -> _Item:
    return _checked(shape, answer.members.get("data"))


def _with_secret(answer: Answer) -> WebhookWithSecret:
    made = _one(answer, _Secret)
    return WebhookWithSecret(_one(answer, Webhook), made.secret, made.public_key)


def _listed(answer: Answer, shape: type[_Item]) -> Listed[_Item]:
    try:
        items, following = answer.members["data"], answer.members["meta"]["cursors"]["next"]
        return Listed([_checked(shape, one) for one in items], following)
    except (LookupError, TypeError) as error:
        raise Unexpected(f"the answer is not a page: {error}") from error


def _checked(shape: type[_Item], members: Any) -> _Item:
    if not isinstance(members, Mapping):
        raise Unexpected("the answer has no data")
    try:
        return read(shape, members)
    except Malformed as error:
        raise Unexpected(f"the answer is not of the contract: {error}") from error
