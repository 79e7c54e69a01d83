"""What was written: topics, their partitions, the lag of each group, and their messages, without guests and cards; webhooks, and
the deliveries to each; the audit trail."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from forwarder.console.guard import Visit
from forwarder.console.responses import Go, Page, address, moment_of
from forwarder.console.service import ConsoleParts, Recent
from forwarder.http.parameters import LARGEST_ID, is_digits, positive
from forwarder.operate.deployment.audit import details_of
from forwarder.operate.deployment.status import groups_of
from forwarder.operate.deployment.topics import browse
from forwarder.store.audit import AuditFilter
from forwarder.store.deliveries import DeliveryStatus
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
        return found, [name for name in self._topics.all() if name not in known]

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
        problem = f"{text!r} is not a time: write one in UTC as 2031-12-31T12:00." if text and since is None else None
        since = since or self._clock.now() - _AGO
        partition = int(wanted) if is_digits(wanted) and (wanted == "0" or positive(wanted, LARGEST_ID)) else None
        skip = positive(visit.query("skip"), LARGEST_ID) or 0
        messages, whole = await browse(self._log, name, since=since, limit=_ROWS, partition=partition, skip=skip)
        shown_since = since.strftime("%Y-%m-%dT%H:%M:%S")
        values = {"topic": name, "since": shown_since, "partition": partition, "problem": problem}
        more = None
        if len(messages) == _ROWS:
            last = messages[-1].at
            shown = sum(each.at == last for each in messages) + (skip if last == since else 0)  # of that moment
            onward = {"since": last.strftime("%Y-%m-%dT%H:%M:%S.%f"), "partition": partition, "skip": shown}
            more = address(f"/topics/{name}", **onward)
        return Page("messages.html", {**values, "messages": messages, "whole": whole, "more": more})


class WebhookPages:
    """Endpoints and their deliveries."""

    def __init__(self, parts: ConsoleParts) -> None:
        self._webhooks = parts.webhooks

    async def list(self, _visit: Visit) -> Page:
        return Page("webhooks.html", {"endpoints": await self._webhooks.endpoints(None)})

    async def show(self, visit: Visit) -> Page:
        endpoint = await self._webhooks.get(visit.request.path_params["id"], workspace_id=None)
        before, named = positive(visit.query("before"), LARGEST_ID), visit.query("status")
        tried = visit.query("tried") == "yes"
        status = DeliveryStatus(named) if named in set(DeliveryStatus) else None
        found = await self._webhooks.deliveries(
            endpoint.id, workspace_id=None, status=status, before=before, limit=_ROWS + 1, tried=tried
        )
        path = f"/webhooks/{endpoint.id}"
        onward = {"status": status, "tried": "yes" if tried else None}
        more = address(path, **onward, before=found[_ROWS - 1].id) if len(found) > _ROWS else None
        values = {"endpoint": endpoint, "deliveries": found[:_ROWS], "more": more}
        return Page("webhook.html", {**values, "status": status, "statuses": list(DeliveryStatus), "tried": tried})

    async def act(self, visit: Visit) -> Go | Page:
        endpoint_id = visit.request.path_params["id"]
        path = address(f"/webhooks/{endpoint_id}")
        match visit.form.text("do"):
            case "enable":
                await self._webhooks.enable(endpoint_id, workspace_id=None)
                return Go(path, "It is posted to again, events from now on.")
            case "disable":
                await self._webhooks.disable(endpoint_id, workspace_id=None)
                return Go(path, "The webhook is disabled; its pending deliveries are stopped.")
            case "resend":
                endpoint = await self._webhooks.get(endpoint_id, workspace_id=None)
                if not endpoint.enabled:
                    return Go(path, "Nothing is sent to a disabled endpoint: enable it first.")
                delivery = positive(visit.form.text("delivery"), LARGEST_ID) or 0
                await self._webhooks.resend(endpoint_id, delivery, workspace_id=None)
                return Go(path, f"Delivery {delivery} is sent again soon.")
            case _:
                return Go(path, "There is no such action; nothing was changed.")


class AuditPages:
    """Who did what."""

    def __init__(self, parts: ConsoleParts) -> None:
        self._trail = parts.backend.trail

    async def list(self, visit: Visit) -> Page:
        who, action, workspace = visit.query("who"), visit.query("action"), visit.query("workspace")
        wanted = AuditFilter(None, who or None, action or None, workspace or None)
        before = positive(visit.query("before"), LARGEST_ID)
        found = await self._trail.entries(wanted, before=before, limit=_ROWS + 1)
        more = None
        if len(found) > _ROWS:
            more = address("/audit", who=who, action=action, workspace=workspace, before=found[_ROWS - 1].number)
        values = {"entries": found[:_ROWS], "details_of": details_of, "more": more}
        return Page("audit.html", {**values, "who": who, "action": action, "workspace": workspace})
