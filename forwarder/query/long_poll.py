"""The status of a submission as soon as it is news to the caller, or its wait (RFC 7240) is over. Touches the store and the log.

Without If-None-Match it responds once the submission is settled; with it, once the tag differs. An event wakes the waiting
request, which reads nothing meanwhile. Changes without an event (ingestion, a deferred try) show when the wait is over.
"""

from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request

from forwarder.http.admission import place_of
from forwarder.http.conditional import NotModified, conditional_response, entity_tag, matches
from forwarder.http.fields import Wait, read_wait
from forwarder.http.messages import Response, client_left, header_map
from forwarder.query.parts import QueryParts
from forwarder.query.status import untaken_status, write_status
from forwarder.reservation.outcome import Status
from forwarder.tenancy.access import Caller
from forwarder.topics.outcomes import OutcomeEvent

_NO_WAIT = Wait(0)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The submission as last read: its status response, and the revision of its last event. `duplicate_of`: the submission that
    this one is a duplicate of, and whose state this is."""

    body: bytes
    status: Status
    revision: int
    duplicate_of: str | None = None

    def is_news(self, if_none_match: str | None) -> bool:
        if if_none_match is None:
            return self.status is not Status.PENDING
        return not matches(if_none_match, entity_tag(self.body))


class _Later:
    """Matches events later than the last one seen; a repeated event does not match."""

    def __init__(self, revision: int) -> None:
        self.revision = revision

    def __call__(self, settled: OutcomeEvent) -> bool:
        return settled.revision > self.revision


class _Poll:
    """One caller's poll for one submission."""

    def __init__(self, caller: Caller, request_id: str, request: Request) -> None:
        headers = header_map(request.scope)
        self.account_id = caller.account.id
        self.workspace_id = caller.workspace_id
        self.place = place_of(request.scope)
        self.request_id = request_id
        self.if_none_match = headers.get("if-none-match")
        self.prefer = headers.get("prefer")
        self.left = False
        self._request = request
        self._body_left = True

    async def gone(self) -> None:
        """Return when the caller has left."""
        while self._body_left:
            self._body_left = (await self._request.receive()).get("more_body", False)
        self.left = await client_left(self._request.scope, self._request.receive)


class LongPoll:
    """Responds for one submission at a time. Raises `StoreUnavailable`, and `ClientDisconnect` if the client has gone."""

    def __init__(self, parts: QueryParts) -> None:
        self._parts = parts

    async def respond(self, caller: Caller, request_id: str, request: Request) -> Response | NotModified | None:
        """The status, from the moment of acceptance on; None if the account has no such submission."""
        poll = _Poll(caller, request_id, request)
        wait = self._wait(poll)
        seen = await self._look(poll)
        if seen is None:
            return None
        waited = wait.seconds > 0
        if waited and not seen.is_news(poll.if_none_match):
            seen, waited = await self._news(poll, seen, wait.seconds)
        headers = [(b"preference-applied", wait.applied.encode())] if waited else []
        if seen.duplicate_of is not None:
            headers.append((b"duplicate-of", seen.duplicate_of.encode()))
        return conditional_response(seen.body, poll.if_none_match, *headers)

    def _wait(self, poll: _Poll) -> Wait:
        return _NO_WAIT if poll.prefer is None else read_wait(poll.prefer, _NO_WAIT, self._parts.max_wait_seconds)

    async def _news(self, poll: _Poll, seen: _Seen, seconds: float) -> tuple[_Seen, bool]:
        """The latest reading within `seconds`; and False if it could not wait: too many requests wait, or the log is
        unavailable."""
        end = self._parts.clock.monotonic() + seconds
        while True:
            later = _Later(seen.revision)
            # Register before the first read, so that an event after the read is not missed.
            awaited = seen.duplicate_of or poll.request_id
            async with self._parts.outcomes.expecting(awaited, later, party=poll.workspace_id) as expected:
                seen = await self._look(poll) or seen
                left = end - self._parts.clock.monotonic()
                if seen.is_news(poll.if_none_match) or left <= 0:
                    return seen, True
                if expected is None or not self._parts.outcomes.following:
                    return seen, False
                if awaited != (seen.duplicate_of or poll.request_id):
                    continue  # the read has shown that it is a duplicate: wait for the original
                later.revision = seen.revision
                if poll.place is not None:
                    poll.place.leave()  # from now on it counts as a waiting request
                heard = await expected.within(left, poll.gone)
            if poll.left:
                raise ClientDisconnect
            if heard is None:
                return await self._look(poll) or seen, True

    async def _look(self, poll: _Poll) -> _Seen | None:
        """The state in the store; for a submission that is not there yet, its signed identifier proves that it was accepted."""
        stored = await self._parts.reader.submission(poll.account_id, poll.request_id)
        if stored is not None:
            original = None if stored.request_id == poll.request_id else stored.request_id
            return _Seen(write_status(stored), stored.status, stored.revision, original)
        if self._parts.ids.vouches(poll.account_id, poll.request_id):
            return _Seen(untaken_status(poll.request_id), Status.PENDING, 0)
        return None
