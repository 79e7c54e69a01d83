"""Managing webhooks: endpoints, secrets and the delivery log, for the command line and the HTTP API alike. Every change is audited.

`workspace_id` is the caller: another workspace's endpoint looks as if it did not exist. None is the operator, who may use any. All
methods may raise `NotKnown`, `TenancyUnavailable` and `StoreUnavailable`, in addition to the errors they name."""

import secrets
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from pydantic_core import to_json

from forwarder.notifier.posting import TEST_EVENT, body_of
from forwarder.oversight.audit import Audit, Operation
from forwarder.process.clock import Clock, iso
from forwarder.process.enlistment import tell
from forwarder.reservation.checks.card_numbers import mask
from forwarder.reservation.record import RESULT_TYPES
from forwarder.store.deliveries import DeliveryEntry, DeliveryStatus, NewDelivery
from forwarder.tenancy.port import Disabled, Endpoint, NotKnown, Sealer
from forwarder.tenancy.sealing import of_webhook_headers, of_webhook_secret, origin_of
from forwarder.webhooks.addresses import ResolvedTargets
from forwarder.webhooks.port import new_secret, require_headers

if TYPE_CHECKING:
    from forwarder.store.delivery_queue import Deliveries
    from forwarder.tenancy.sql.endpoints import Endpoints

MAX_OVERLAP_SECONDS: Final = 7 * 24 * 60 * 60
DEFAULT_OVERLAP_SECONDS: Final = 24 * 60 * 60
_MAX_ID: Final = 2**63 - 1


class EndpointDisabled(RuntimeError):
    """Nothing is sent to a disabled endpoint: enable it first."""


class UnknownType(ValueError):
    """There is no event of that type. The message lists the existing types."""


class HeadersNeeded(ValueError):
    """The URL has another host, and the headers are sealed for the host before."""


class WebhookTerms(TypedDict, total=False):
    """Set by the owner. `types`, `account_ids`, `property_ids`: None for all. `headers` replace all earlier ones."""

    url: str
    types: Sequence[str] | None
    account_ids: Sequence[str] | None
    property_ids: Sequence[str] | None
    description: str
    headers: Mapping[str, str]
    asymmetric: bool


@dataclass(frozen=True, slots=True)
class Webhooks:
    registry: "Endpoints"
    log: "Deliveries"
    sealer: Sealer
    targets: ResolvedTargets
    clock: Clock
    audit: Audit

    async def add(self, workspace_id: str, url: str, /, **terms: Unpack[WebhookTerms]) -> tuple[Endpoint, str]:
        """Adds an endpoint, which gets events from now on. Returns it with its secret, which is shown only once. Raises
        `BadTarget`, `BadHeaders`, `UnknownType`, `UnknownAccount`, `TooManyEndpoints`."""
        new_id = f"whk_{secrets.token_hex(10)}"
        async with self.audit.operation("webhook.add", workspace=workspace_id, target=new_id):
            secret = new_secret()
            sealed, now = self.sealer.seal_text(secret, of_webhook_secret(new_id)), self.clock.now()
            empty = Endpoint(new_id, workspace_id, url, None, "", True, None, None, sealed, now)  # noqa: FBT003 - enabled
            endpoint = await self._with_terms(empty, terms | {"url": url})
            tell(details=_audited(endpoint, {"url", *terms}))
            await self.registry.add(endpoint)
        return endpoint, secret

    async def endpoints(self, workspace_id: str | None) -> Sequence[Endpoint]:
        return await self.registry.of(workspace_id)

    async def get(self, endpoint_id: str, *, workspace_id: str | None) -> Endpoint:
        endpoint = await self.registry.endpoint(endpoint_id)
        if endpoint is not None and workspace_id in {None, endpoint.workspace_id}:
            return endpoint
        raise _unknown(endpoint_id)

    async def change(self, endpoint_id: str, *, workspace_id: str | None, **terms: Unpack[WebhookTerms]) -> Endpoint:
        """Changes the given terms. Headers are sealed for their host: a URL with another host needs them again, or empty. Raises
        `BadTarget`, `BadHeaders`, `HeadersNeeded`, `UnknownType`, `UnknownAccount`."""
        async with self._changing("change", endpoint_id, workspace_id) as (found, operation):
            operation.details["changed"], was = list(terms), found
            while True:
                wanted = await self._with_terms(was, terms)
                tell(details=_audited(wanted, terms) | {"was": _audited(was, terms)})
                if (changed := await self.registry.change(was, wanted)) is not None:
                    return changed
                was = await self.get(endpoint_id, workspace_id=workspace_id)  # somebody else has changed or removed it

    async def _with_terms(self, was: Endpoint, terms: WebhookTerms) -> Endpoint:
        url, headers = terms.get("url", was.url), terms.get("headers")
        if "url" in terms:
            await self.targets.check(url)
        if headers is None and was.headers is not None and origin_of(url) != origin_of(was.url):
            raise HeadersNeeded("The address has another host: give the headers again, or none to remove them.")
        changes: dict[str, Any] = {**terms, "description": terms.get("description", was.description)[:500]}
        for name in {"types", "account_ids", "property_ids"} & changes.keys():
            changes[name] = changes[name] and tuple(dict.fromkeys(changes[name]))
        for kind in changes.get("types") or ():
            if kind not in RESULT_TYPES:
                raise UnknownType(f"There is no event of type {kind!r}. There are: {', '.join(RESULT_TYPES)}.")
        if headers is not None:
            require_headers(headers)
            text, place = to_json(headers).decode(), of_webhook_headers(was.id, url)
            sealed = self.sealer.seal_text(text, place) if headers else None
            changes |= {"headers": sealed, "header_names": tuple(headers) or None}
        return replace(was, **changes)

    async def enable(self, endpoint_id: str, *, workspace_id: str | None) -> Endpoint:
        """Post to it again: events from now on, and deliveries that are sent again."""
        async with self._changing("enable", endpoint_id, workspace_id):
            if (enabled := await self.registry.enable(endpoint_id)) is None:
                raise _unknown(endpoint_id)
            return enabled

    async def disable(self, endpoint_id: str, *, workspace_id: str | None) -> Endpoint:
        """Stop posting to it: pending deliveries end as `STOPPED`, and events are not queued meanwhile."""
        async with self._changing("disable", endpoint_id, workspace_id):
            now = self.clock.now()
            await self.registry.disable(endpoint_id, Disabled.BY_HAND, now=now)
            await self.log.stop(endpoint_id, now=now)
            return await self.get(endpoint_id, workspace_id=workspace_id)

    async def remove(self, endpoint_id: str, *, workspace_id: str | None) -> None:
        """Removes the endpoint. Its delivery log is no longer shown, and deleted after the usual time."""
        async with self._changing("remove", endpoint_id, workspace_id):
            if not await self.registry.remove(endpoint_id):
                raise _unknown(endpoint_id)
            await self.log.stop(endpoint_id, now=self.clock.now())

    async def rotate(
        self, endpoint_id: str, *, workspace_id: str | None, overlap_seconds: int = DEFAULT_OVERLAP_SECONDS
    ) -> tuple[Endpoint, str]:
        """Gives the endpoint a new secret, which is shown only once. The previous one also signs for `overlap_seconds`, and older
        ones until their own time; 0 ends all of them at once. Raises `ValueError` if that is negative or longer than a week."""
        if not 0 <= overlap_seconds <= MAX_OVERLAP_SECONDS:
            raise ValueError(f"Two secrets sign for 0 to {MAX_OVERLAP_SECONDS} seconds.")
        async with self._changing("rotate", endpoint_id, workspace_id) as (_, operation):
            operation.details["overlapSeconds"] = overlap_seconds
            secret = new_secret()
            until = self.clock.now() + timedelta(seconds=overlap_seconds) if overlap_seconds else None
            sealed = self.sealer.seal_text(secret, of_webhook_secret(endpoint_id))
            if (rotated := await self.registry.rotate(endpoint_id, sealed, previous_until=until)) is None:
                raise _unknown(endpoint_id)
            return rotated, secret

    async def test(self, endpoint_id: str, *, workspace_id: str | None) -> int:
        """Queues a `webhook.test.v1` for this endpoint, whatever it subscribes to. Returns the delivery id. Raises
        `EndpointDisabled`."""
        async with self._changing("test", endpoint_id, workspace_id) as (endpoint, _):
            _require_enabled(endpoint)
            now = self.clock.now()
            data = to_json({"endpointId": endpoint.id, "workspaceId": endpoint.workspace_id}).decode()
            event_id, body = f"test_{secrets.token_hex(12)}", body_of(TEST_EVENT, iso(now), data)
            [number] = await self.log.queue([NewDelivery(endpoint.id, event_id, TEST_EVENT, body)], now=now)
            return number

    async def deliveries(
        self,
        endpoint_id: str,
        *,
        workspace_id: str | None,
        status: DeliveryStatus | None = None,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
        tried: bool = False,
    ) -> Sequence[DeliveryEntry]:
        """The delivery log, newest first. Next page: `before` the last id; previous page: `after` the first. `tried`: only what was
        posted at least once."""
        await self.get(endpoint_id, workspace_id=workspace_id)
        below = None if before is None or before > _MAX_ID else before
        return await self.log.entries(endpoint_id, status=status, before=below, after=after, limit=limit, tried=tried)

    async def delivery(self, endpoint_id: str, delivery_id: int, *, workspace_id: str | None) -> DeliveryEntry:
        await self.get(endpoint_id, workspace_id=workspace_id)
        entry = await self.log.entry(endpoint_id, delivery_id) if 0 <= delivery_id <= _MAX_ID else None
        if entry is None:
            raise NotKnown(f"There is no delivery {delivery_id} of the endpoint {endpoint_id!r}.")
        return entry

    async def resend(self, endpoint_id: str, delivery_id: int, *, workspace_id: str | None) -> DeliveryEntry:
        """Posts it soon, as a new series of attempts with the same `webhook-id`, whatever its status. Raises `EndpointDisabled`."""
        async with self._changing("resend", endpoint_id, workspace_id) as (endpoint, operation):
            operation.details["delivery"] = delivery_id
            _require_enabled(endpoint)
            await self.delivery(endpoint_id, delivery_id, workspace_id=workspace_id)
            await self.log.put_back(endpoint_id, [delivery_id], now=self.clock.now())
            return await self.delivery(endpoint_id, delivery_id, workspace_id=workspace_id)

    async def recover(self, endpoint_id: str, *, workspace_id: str | None, since: datetime) -> int:
        """Resend all that were queued from `since` on and ended undelivered. Returns how many. Raises `EndpointDisabled`."""
        async with self._changing("recover", endpoint_id, workspace_id) as (endpoint, operation):
            operation.details["since"] = iso(since)
            _require_enabled(endpoint)
            return await self.log.put_back_ended(endpoint_id, since=since, now=self.clock.now())

    @asynccontextmanager
    async def _changing(
        self, verb: str, endpoint_id: str, workspace_id: str | None
    ) -> AsyncIterator[tuple[Endpoint, Operation]]:
        async with self.audit.operation(f"webhook.{verb}", workspace=workspace_id, target=endpoint_id) as operation:
            endpoint = await self.get(endpoint_id, workspace_id=workspace_id)
            operation.workspace = endpoint.workspace_id
            yield endpoint, operation


def _audited(endpoint: Endpoint, terms: Collection[str]) -> dict[str, Any]:
    """These terms as far as the audit trail has them: of an address the host, of headers the names, of a list the beginning."""
    shown = {**endpoint.terms, "url": origin_of(endpoint.url), "headers": endpoint.header_names}
    return {
        name: [mask(each) for each in value[:20]] if isinstance(value, tuple) else value
        for name, value in shown.items()
        if name in terms and name != "description"
    }


def _require_enabled(endpoint: Endpoint) -> None:
    if not endpoint.enabled:
        raise EndpointDisabled(f"The endpoint {endpoint.id!r} is disabled: enable it first.")


def _unknown(endpoint_id: str) -> NotKnown:
    return NotKnown(f"There is no webhook endpoint {endpoint_id!r}.")
