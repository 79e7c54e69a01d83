"""Result events of a workspace, derived by polling the public API for changed submissions. It works from any machine that can
call the API, because nothing has to reach this one.

Polling sees states, not every step: of two changes between two polls it reports only the later one. An event's id ends with the
time of the change in milliseconds, where a webhook's ends with the revision: a later event of a submission has the higher number.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from forwarder.cli.listen.api import Api, ApiRefused, ApiUnavailable
from forwarder.cli.operate.results import ReadRange
from forwarder.cli.output import Failed, note
from forwarder.notifier.events import Event, body_of
from forwarder.process.clock import Clock, iso
from forwarder.reservation.cancellation import CancellationStatus
from forwarder.reservation.outcome import Status
from forwarder.reservation.record import EVENT_TYPES, ResultEvent
from forwarder.tenancy.api_keys import is_test_token

_RESERVATIONS: Final = "/api/v1/vrs/reservations"
_SUBMISSIONS: Final = "/api/v1/vrs/submissions"
_PAGE: Final = 200
_PAUSE_SECONDS: Final = 1.0
_OVERLAP: Final = timedelta(minutes=10)
"""How far each poll reaches back before the previous one: clocks differ, and a change becomes visible shortly after its time."""
_ANY_STATUS: Final = ",".join(Status)


_Found = Sequence[tuple[str, Mapping[str, Any]]]
"""Accounts and their records, in order of change."""


@dataclass(slots=True)
class Changes:
    """The changes in those of `accounts` that `api` may read."""

    api: Api
    accounts: Sequence[str]
    clock: Clock
    _known: dict[str, str] = field(default_factory=dict, init=False)
    """The last known time of change of each submission that a poll may find again."""

    async def events(self, read_range: ReadRange) -> AsyncGenerator[Sequence[Event], None]:
        """Yields each event once, from the start of `read_range`, in the order of the changes; never ends. Reports an outage on
        standard error and retries. Raises `Failed` where the API refuses."""
        began = self.clock.now()
        found = await self._look(None if read_range.beginning else (read_range.since or began) - _OVERLAP)
        news = [each for each in found if _is_wanted(each[1], read_range)]
        self._known = {record["requestId"]: record["updatedAt"] for _, record in found}
        yield await self._events_of(news)
        while True:
            await self.clock.sleep(_PAUSE_SECONDS)
            earliest, began = began - _OVERLAP, self.clock.now()
            found = await self._look(earliest)
            yield await self._events_of(
                [(account, one) for account, one in found if self._known.get(one["requestId"]) != one["updatedAt"]]
            )
            self._known = {request_id: at for request_id, at in self._known.items() if at >= iso(earliest)}

    async def _look(self, earliest: datetime | None) -> _Found:
        """Every record that changed at `earliest` or later."""
        since = {} if earliest is None else {"updatedSince": iso(earliest)}
        found = [(account, one) for account in self.accounts for one in await self._records(account, since)]
        return sorted(found, key=lambda each: str(each[1]["updatedAt"]))

    async def _records(self, account: str, since: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
        records: list[Mapping[str, Any]] = []
        cursor = ""
        while True:
            query = {"status": _ANY_STATUS, "limit": str(_PAGE), **since, **({"cursor": cursor} if cursor else {})}
            page = await self._read(_RESERVATIONS, account, query)
            records += page["data"]
            cursor = page["meta"]["cursors"]["next"]
            if not cursor:
                return records

    async def _events_of(self, news: _Found) -> Sequence[Event]:
        """The events of these records, read in full; none for records in progress."""
        events: list[Event] = []
        for account, record in news:
            if record["status"] in EVENT_TYPES:
                path = f"{_SUBMISSIONS}/{record['requestId']}"
                submission = (await self._read(path, account, {}))["data"]
                events += self._event(account, submission)
        return events

    def _event(self, account: str, submission: Mapping[str, Any]) -> Sequence[Event]:
        """The event for the submission's current state: none while it is in progress, nor for a cancellation that is only
        requested."""
        request_id, changed, status = submission["requestId"], submission["updatedAt"], submission["status"]
        reported_before = self._known.get(request_id) is not None
        self._known[request_id] = changed
        cancellation = submission["cancellation"]
        asked_for = cancellation is not None and cancellation["status"] == CancellationStatus.REQUESTED
        if status not in EVENT_TYPES or (asked_for and reported_before):
            return ()
        data = {
            "requestId": request_id,
            "workspaceId": self.api.workspace,
            "integrationAccountId": account,
            "status": status,
            "reservation": submission["record"],
            **({"cancellation": cancellation} if cancellation is not None and not asked_for else {}),
            **({"test": True} if is_test_token(self.api.token) else {}),
        }
        revision = round(datetime.fromisoformat(changed).timestamp() * 1000)
        result = ResultEvent(request_id, revision, Status(status), "", changed, data)
        body = body_of(result.type, changed, b"".join(result.written).decode())
        return (Event(result.event_id, result.type, self.api.workspace, body),)

    async def _read(self, path: str, account: str, query: Mapping[str, str]) -> Mapping[str, Any]:
        """The API's response; retries outages. Raises `Failed` where the API refuses."""
        while True:
            try:
                return await asyncio.to_thread(self.api.get, path, account, query)
            except ApiUnavailable as outage:
                note(f"{outage}; trying again")
                await self.clock.sleep(_PAUSE_SECONDS)
            except ApiRefused as refused:
                raise Failed(f"the API refuses to list {account}: {refused}") from None


def _is_wanted(record: Mapping[str, Any], read_range: ReadRange) -> bool:
    since = read_range.since
    return read_range.beginning or (since is not None and str(record["updatedAt"]) >= iso(since))
