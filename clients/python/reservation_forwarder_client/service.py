"""The client: the service's operations as coroutines. Touches the network, by `Requester`."""

import copy
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self, Unpack
from urllib.parse import quote

import httpx

from reservation_forwarder_client import responses
from reservation_forwarder_client.bulk import MAX_ITEMS, Item, Operation, bulks, new_key
from reservation_forwarder_client.listing import MAX_PAGE, Filters, Page, parameters_of
from reservation_forwarder_client.problems import Problem, Refused, Unavailable
from reservation_forwarder_client.records import DryRun, Reservation, Submission
from reservation_forwarder_client.requests import ApiRequest, Clock, MachineClock, Requester, RetryPolicy
from reservation_forwarder_client.wire import json_bytes, preference, quoted

_RESERVATIONS: Final = "/api/v1/vrs/reservations"
_SUBMISSIONS: Final = "/api/v1/vrs/submissions"
_PATHS: Final[Mapping[Operation, str]] = {
    "booking-engine": f"{_RESERVATIONS}/booking-engine",
    "general": _RESERVATIONS,
}
_MAX_WAIT_SECONDS: Final = 30
# Those who wait for an outcome hold a connection each: a bound would make calls wait for one another.
_CONNECTIONS: Final = httpx.Limits(max_connections=None, max_keepalive_connections=100)
_LOOKS: Final = RetryPolicy(first_seconds=0.2, max_seconds=2.0)


class ForwarderClient:
    """One integration account of a workspace, as its API key may use it. Use it as an async context manager, which closes its
    connections. Any number of calls may be under way at once. `base_url`: where the service is, without `/api`; all of its
    stages, as a proxy puts them together.

    Every call is made again as `retry_policy` allows, where nothing answered, or 429, 502, 503 or 504 did. It raises what
    `problems` draws. `timeout_seconds`: how long one try may take, beside the time it lets the service wait.
    `transport` is httpx's seam: for a proxy, a certificate of your own, or a test without a network.
    """

    def __init__(
        self,
        base_url: str,
        *,
        token: str,
        workspace: str,
        account: str,
        timeout_seconds: float = 30.0,
        retry_policy: RetryPolicy | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        headers = {"Authorization": f"Bearer {token}", "workspaceId": workspace, "User-Agent": "forwarder-client"}
        self._http = httpx.AsyncClient(base_url=base_url, headers=headers, transport=transport, limits=_CONNECTIONS)
        self._clock = clock or MachineClock()
        self._requester = Requester(
            self._http, timeout_seconds=timeout_seconds, retry_policy=retry_policy or RetryPolicy(), clock=self._clock
        )
        self._account = account

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections, those of `for_account` with them."""
        await self._http.aclose()

    def for_account(self, account: str) -> Self:
        """The same client for another integration account of the workspace, over the same connections."""
        other = copy.copy(self)
        other._account = account  # noqa: SLF001 - of its own class
        return other

    async def submit(
        self,
        reservation: Mapping[str, Any],
        *,
        operation: Operation = "booking-engine",
        idempotency_key: str | None = None,
        wait: int | None = None,
        deadline: int | None = None,
    ) -> Submission:
        """Submit `reservation`, by the names of the contract; days and decimals may be Python's own.

        The submission is safe, and usually `PENDING`. `wait`: up to so many seconds for its outcome, which may be REJECTED: that is
        an answer, not an error; 0 does not wait; None is the operation's own way, and the general one waits for a while.
        `deadline`: the seconds for which it is worth forwarding. `idempotency_key`: what makes another call with it the same
        submission, for ever; without one, the tries of this call alone are one, under a key of the client's.
        Raises `Refused` where it was not accepted, and `Unavailable`, with the key, where that is not known.
        """
        key = idempotency_key or new_key()
        headers = {"Idempotency-Key": quoted(key), **preference(wait)}
        if deadline is not None:
            headers["Forward-Deadline"] = str(deadline)
        try:
            call = self._post(_PATHS[operation], json_bytes(reservation), headers, wait)
            code, members = await self._requester.members(call)
            submitted = responses.submission(members) if code == httpx.codes.ACCEPTED else responses.made(members)
        except Refused as refused:
            submitted = responses.outcome(refused)
        except Unavailable as error:
            error.idempotency_key = key
            raise
        return replace(submitted, idempotency_key=key)

    async def submit_many(
        self, items: Iterable[Item], *, bulk_size: int = MAX_ITEMS
    ) -> AsyncIterator[Submission | Problem]:
        """Submit `items` in bulks, and tell of each, in their order, whether it was accepted, as soon as its bulk is answered.

        One that is refused harms no other. Outcomes are not waited for. Raises `Unavailable` where a bulk is not answered, and
        `Refused` where it is refused as a whole: what was yielded before is safe; give items keys of your own, and the rest can be
        sent again.
        """
        for some, body in bulks(items, bulk_size):
            _, members = await self._requester.members(self._post(f"{_RESERVATIONS}/bulk", body))
            for result in responses.results(members, [item.idempotency_key for item in some]):
                yield result

    async def dry_run(self, reservation: Mapping[str, Any], *, operation: Operation = "booking-engine") -> DryRun:
        """What would come of `reservation`; nothing is made of it. Raises `Refused` where it is not as the contract has it."""
        call = replace(self._post(_PATHS[operation], json_bytes(reservation)), params={"dryRun": "true"})
        _, members = await self._requester.members(call)
        return responses.dry_run(members)

    async def cancel(self, identifier: str | int, reason: str | None = None, *, wait: int | None = None) -> Submission:
        """Ask for the cancellation of a submission, by its `request_id` or its reservation's `id`; asking again changes nothing.

        Up to `wait` seconds for what comes of it. Raises `Refused` where nothing was made, or the PMS said no.
        """
        path = f"{_RESERVATIONS}/{quote(str(identifier), safe='')}/cancel"
        body = {} if reason is None else {"reason": reason}
        code, members = await self._requester.members(self._post(path, json_bytes(body), preference(wait), wait))
        return responses.cancelling(members) if code == httpx.codes.ACCEPTED else responses.made(members)

    async def submission(self, request_id: str) -> Submission:
        """How a submission stands, with every attempt. Raises `Refused` (`submission_not_found`)."""
        return await self._submission(request_id, 0)

    async def wait(self, request_id: str, *, timeout_seconds: float = 60.0) -> Submission:
        """The submission once it has an outcome; after `timeout_seconds` as it then stands, perhaps still `PENDING`.

        The service is asked to answer when the outcome comes. Where it answers sooner, pauses that grow lie between two calls.
        An outage on the way may take longer, as the retry policy allows.
        """
        until, looks = self._clock.monotonic() + timeout_seconds, 0
        while True:
            begun = self._clock.monotonic()
            seconds = max(min(int(until - begun), _MAX_WAIT_SECONDS), 0)
            seen = await self._submission(request_id, seconds)
            now = self._clock.monotonic()
            if seen.settled or now >= until:
                return seen
            looks = 0 if 0 < seconds <= now - begun else looks + 1
            await self._clock.sleep(min(_LOOKS.pause(looks, 1.0) if looks else 0.0, until - now))

    async def reservation(self, reservation_id: int) -> Reservation:
        """One reservation, whatever its status. Raises `Refused` (`reservation_not_found`)."""
        return responses.reservation(await self._get(f"{_RESERVATIONS}/{reservation_id}", {}))

    async def pages(
        self, *, page_size: int = MAX_PAGE, cursor: str = "", **filters: Unpack[Filters]
    ) -> AsyncIterator[Page]:
        """The account's reservations, a page at a time, from `cursor` on: a page's `cursors.next`, kept from before.

        Each reservation that was there when the first page was read comes exactly once.
        """
        asked = parameters_of(filters) | {"limit": str(page_size)}
        while True:
            page = responses.page(await self._get(_RESERVATIONS, asked | ({"cursor": cursor} if cursor else {})))
            yield page
            cursor = page.cursors.next
            if not cursor:
                return

    async def reservations(
        self, *, page_size: int = MAX_PAGE, **filters: Unpack[Filters]
    ) -> AsyncIterator[Reservation]:
        """The account's reservations, oldest first unless `order` says otherwise, page after page as they are asked for. What was
        rejected or has failed only where `status` names it."""
        async for page in self.pages(page_size=page_size, **filters):
            for reservation in page.reservations:
                yield reservation

    async def _submission(self, request_id: str, seconds: int) -> Submission:
        path = f"{_SUBMISSIONS}/{quote(request_id, safe='')}"
        headers = {**self._headers(), **(preference(seconds) if seconds else {})}
        _, members = await self._requester.members(ApiRequest("GET", path, headers, wait_seconds=seconds))
        return responses.submission(members)

    async def _get(self, path: str, params: Mapping[str, str]) -> Mapping[str, Any]:
        _, members = await self._requester.members(ApiRequest("GET", path, self._headers(), params))
        return members

    def _post(
        self, path: str, body: bytes, headers: Mapping[str, str] | None = None, wait: int | None = None
    ) -> ApiRequest:
        headers = {**self._headers(), "Content-Type": "application/json", **(headers or {})}
        return ApiRequest("POST", path, headers, content=body, wait_seconds=wait or 0)

    def _headers(self) -> dict[str, str]:
        return {"integrationAccountId": self._account}
