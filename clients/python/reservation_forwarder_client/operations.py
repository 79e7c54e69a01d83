"""The service's operations as steps: what each asks for, and how it reads the answers. Pure."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

from reservation_forwarder_client import responses
from reservation_forwarder_client.bodies import Reservable
from reservation_forwarder_client.bulk import Bulk
from reservation_forwarder_client.keys import FailedKeys
from reservation_forwarder_client.listing import Filters, Page, parameters_of
from reservation_forwarder_client.problems import ForwarderError, Problem, Refused
from reservation_forwarder_client.records import Reservation
from reservation_forwarder_client.requests import Answer, ApiRequest, Exchange, Pause, RetryPolicy, Steps, Time
from reservation_forwarder_client.submissions import DryRun, OutcomeTimeout, Submission
from reservation_forwarder_client.wire import json_bytes, preference, quoted

RESERVATIONS: Final = "/api/v1/vrs/reservations"
BOOKING_ENGINE: Final = f"{RESERVATIONS}/booking-engine"
_SUBMISSIONS: Final = "/api/v1/vrs/submissions"
_MAX_WAIT_SECONDS: Final = 30
_LOOKS: Final = RetryPolicy(first_seconds=0.2, max_seconds=2.0)


class Operations:
    """The operations in one integration account."""

    def __init__(self, account: str, retry_policy: RetryPolicy, time: Time) -> None:
        self._account = account
        self._time = time
        self._exchange = Exchange(retry_policy, time)
        self._failed = FailedKeys()

    def for_account(self, account: str) -> "Operations":
        """The same in another integration account."""
        other = copy.copy(self)
        other._account = account  # noqa: SLF001 - of its own class
        return other

    def submit(
        self, path: str, reservation: Reservable, key: str | None, wait: int | None, deadline: int | None
    ) -> Steps[Submission]:
        """Submit at `path` under `key`; without one, under that of a failed call with the same object, or a new one. An error has
        the key."""
        body = json_bytes(reservation)
        key = key or self._failed.key_for(self._account, reservation, body)
        headers = {"Idempotency-Key": quoted(key), **preference(wait)}
        if deadline is not None:
            headers["Forward-Deadline"] = str(deadline)
        try:
            try:
                answer = yield from self._exchange.answer(self._post(path, body, headers, wait))
            except Refused as refused:
                submitted = responses.outcome(refused)
            else:
                submitted = _told(answer, responses.submission)
        except BaseException as error:  # a call that was cancelled may have been sent
            if isinstance(error, ForwarderError):
                error.idempotency_key = key
            if not (isinstance(error, Refused) and error.code == responses.KEY_REUSED):
                self._failed.keep(self._account, reservation, body, key)
            raise
        self._failed.forget(self._account, reservation)
        return replace(submitted, idempotency_key=key)

    def bulk(self, bulk: Bulk) -> Steps[list[Submission | Problem]]:
        """What became of each item of `bulk`. An error has the items."""
        try:
            answer = yield from self._exchange.answer(self._post(f"{RESERVATIONS}/bulk", bulk.body))
            return responses.results(answer.members, bulk.keys)
        except ForwarderError as error:
            error.items = (*bulk.items, *bulk.following)
            raise

    def dry_run(self, path: str, reservation: Reservable) -> Steps[DryRun]:
        """What would come of it at `path`."""
        request = replace(self._post(path, json_bytes(reservation)), params={"dryRun": "true"})
        answer = yield from self._exchange.answer(request)
        return responses.dry_run(answer.members)

    def cancel(self, identifier: str | int, reason: str | None, wait: int | None) -> Steps[Submission]:
        """Ask for a cancellation."""
        path = f"{RESERVATIONS}/{quote(str(identifier), safe='')}/cancel"
        body = {} if reason is None else {"reason": reason}
        answer = yield from self._exchange.answer(self._post(path, json_bytes(body), preference(wait), wait))
        return _told(answer, responses.cancelling)

    def submission(self, request_id: str, seconds: int = 0) -> Steps[Submission]:
        """Its state; waits for up to `seconds` for an outcome."""
        path = f"{_SUBMISSIONS}/{quote(request_id, safe='')}"
        headers = {**self._headers(), **(preference(seconds) if seconds else {})}
        answer = yield from self._exchange.answer(ApiRequest("GET", path, headers, wait_seconds=seconds))
        return _named(responses.submission(answer.members), answer)

    def wait(self, request_id: str, timeout_seconds: float) -> Steps[Submission]:
        """The submission once it has an outcome: asks again, after growing pauses if the service does not wait."""
        until, looks = self._time.monotonic() + timeout_seconds, 0
        while True:
            begun = self._time.monotonic()
            seconds = int(max(min(until - begun, _MAX_WAIT_SECONDS), 0))
            seen = yield from self.submission(request_id, seconds)
            now = self._time.monotonic()
            if seen.settled:
                return seen
            if now >= until:
                raise OutcomeTimeout(seen, timeout_seconds)
            looks = 0 if 0 < seconds <= now - begun else looks + 1
            yield Pause(min(_LOOKS.pause(looks, 1.0) if looks else 0.0, until - now))

    def reservation(self, reservation_id: int) -> Steps[Reservation]:
        """One reservation."""
        return responses.reservation((yield from self._get(f"{RESERVATIONS}/{reservation_id}", {})))

    def page(self, page_size: int, cursor: str, filters: Filters) -> Steps[Page]:
        """The page that begins at `cursor`; the first without one."""
        asked = parameters_of(filters) | {"limit": str(page_size)} | ({"cursor": cursor} if cursor else {})
        return responses.page((yield from self._get(RESERVATIONS, asked)))

    def _get(self, path: str, params: Mapping[str, str]) -> Steps[Mapping[str, Any]]:
        answer = yield from self._exchange.answer(ApiRequest("GET", path, self._headers(), params))
        return answer.members

    def _post(
        self, path: str, body: bytes, headers: Mapping[str, str] | None = None, wait: int | None = None
    ) -> ApiRequest:
        headers = {**self._headers(), "Content-Type": "application/json", **(headers or {})}
        return ApiRequest("POST", path, headers, content=body, wait_seconds=wait or 0)

    def _headers(self) -> dict[str, str]:
        return {"integrationAccountId": self._account}


def _told(answer: Answer, accepted: responses.Reader) -> Submission:
    """What the answer says: that it was accepted, as `accepted` reads that, or its record."""
    told = accepted(answer.members) if answer.accepted else responses.made(answer.members)
    return replace(
        _named(told, answer),
        idempotent_replayed=answer.headers.get("idempotent-replayed") == "true",
        duplicate_of=answer.headers.get("duplicate-of"),
    )


def _named(submission: Submission, answer: Answer) -> Submission:
    return replace(submission, http_request_id=answer.headers.get("request-id"))
