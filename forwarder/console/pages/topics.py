"""Topics: partitions, offsets and the lag of each group; and the messages in them, without guests and cards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from forwarder.console.guard import Visit
from forwarder.console.recent import Recent
from forwarder.console.responses import Page, moment_of
from forwarder.console.service import ConsoleParts
from forwarder.http.paging import LARGEST_ID, is_digits, positive
from forwarder.operate.deployment.status import groups_of
from forwarder.operate.deployment.topics import browse
from forwarder.tenancy.port import NotKnown
from forwarder.topics.port import TopicAdmin

_ROWS: Final = 50
_AGO: Final = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class _Partition:
    number: int
    held: range
    lag: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Topic:
    name: str
    partitions: Sequence[_Partition]
    groups: Sequence[str]
    keeps: timedelta | None

    @property
    def messages(self) -> int:
        return sum(len(each.held) for each in self.partitions)

    def lag(self, group: str) -> int:
        return sum(each.lag[group] for each in self.partitions)


class TopicPages:
    """The log."""

    def __init__(self, parts: ConsoleParts) -> None:
        backend = parts.backend
        self._log, self._topics, self._clock = backend.log, backend.settings.topics, backend.clock
        self._groups = groups_of(backend.settings)
        self._recent = Recent(self._read, backend.clock)

    async def list(self, _visit: Visit) -> Page:
        topics, missing = await self._recent.get()
        return Page("topics.html", {"topics": topics, "missing": missing})

    async def _read(self) -> tuple[Sequence[_Topic], Sequence[str]]:
        async with self._log.admin() as admin:
            known = await admin.list()
            found = [await self._topic(admin, name) for name in self._topics.all() if name in known]
        missing = [name for name in self._topics.all() if name not in known]
        return found, missing

    async def _topic(self, admin: TopicAdmin, name: str) -> _Topic:
        groups = [group.name for group in self._groups if group.topic == name]
        lags = {
            group: {each.partition: each.messages for each in await admin.lag(name, group=group)} for group in groups
        }
        partitions = [
            _Partition(number, held, {group: behind.get(number, 0) for group, behind in lags.items()})
            for number, held in sorted((await admin.offsets(name)).items())
        ]
        return _Topic(name, partitions, groups, await admin.retention(name))

    async def browse(self, visit: Visit) -> Page:
        name = visit.request.path_params["name"]
        if name not in self._topics.all():
            raise NotKnown(f"There is no topic {name!r} of this deployment.")
        text, wanted = visit.query("since"), visit.query("partition")
        since = moment_of(text)
        problem = f"{text!r} is no moment: write one in UTC as 2031-12-31T12:00." if text and since is None else None
        since = since or self._clock.now() - _AGO
        partition = int(wanted) if is_digits(wanted) and (wanted == "0" or positive(wanted, LARGEST_ID)) else None
        found = await browse(self._log, name, since=since, limit=_ROWS, partition=partition)
        messages = found.messages
        values = {
            "topic": name,
            "since": since.strftime("%Y-%m-%dT%H:%M:%S"),
            "partition": partition,
            "problem": problem,
        }
        following = messages[-1].at.strftime("%Y-%m-%dT%H:%M:%S.%f") if len(messages) == _ROWS else None
        return Page("messages.html", {**values, "messages": messages, "whole": found.whole, "following": following})
