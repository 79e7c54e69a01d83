"""What was written: topics, each group's lag, and messages, without guests and cards; webhooks and deliveries; the audit trail."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from forwarder.console.guard import Visit
from forwarder.console.responses import NO_SUCH_ACTION, Go, RenderedPage, address, moment_of
from forwarder.console.service import ConsoleParts, Recent
from forwarder.http.parameters import LARGEST_ID, is_digits, positive
from forwarder.operate.deployment.audit import details_of
from forwarder.operate.deployment.status import groups_of
from forwarder.operate.deployment.topics import browse
from forwarder.store.audit import AuditFilter
from forwarder.store.deliveries import DeliveryStatus
from forwarder.tenancy.port import NotKnown

_ROWS: Final = 50


class TopicPages:
    def __init__(self, parts: ConsoleParts) -> None:
        self._backend = parts.backend
        self._recent = Recent(self._read, parts.backend.clock)

    async def list(self, _visit: Visit) -> RenderedPage:
        topics, missing = await self._recent.get()
        return RenderedPage("topics.html", {"topics": topics, "missing": missing})

    async def _read(self) -> tuple[Sequence[Mapping[str, Any]], Sequence[str]]:
        found, missing, settings = list[Mapping[str, Any]](), list[str](), self._backend.settings
        async with self._backend.log.admin() as admin:
            known = await admin.list()
            for name in settings.topics.all():
                if name not in known:
                    missing.append(name)
                    continue
                groups = [group.name for group in groups_of(settings) if group.topic == name]
                lags = {
                    group: {lag.partition: lag.messages for lag in await admin.lag(name, group=group)}
                    for group in groups
                }
                partitions = [
                    (number, held, {group: behind.get(number, 0) for group, behind in lags.items()})
                    for number, held in sorted((await admin.offsets(name)).items())
                ]
                lag = {group: sum(behind[group] for _, _, behind in partitions) for group in groups}
                values = {"name": name, "partitions": partitions, "lag": lag, "keeps": await admin.retention(name)}
                found.append({**values, "messages": sum(len(held) for _, held, _ in partitions)})
        return found, missing


async def topic_messages(visit: Visit) -> RenderedPage:
    name, backend = visit.request.path_params["name"], visit.parts.backend
    if name not in backend.settings.topics.all():
        raise NotKnown(f"There is no topic {name!r} of this deployment.")
    text, wanted = visit.query("since"), visit.query("partition")
    since = moment_of(text)
    problem = f"{text!r} is not a time: write one in UTC as 2031-12-31T12:00." if text and since is None else None
    since = since or backend.clock.now() - timedelta(minutes=10)
    partition = int(wanted) if is_digits(wanted) and (wanted == "0" or positive(wanted, LARGEST_ID)) else None
    skip = positive(visit.query("skip"), LARGEST_ID) or 0
    messages, whole = await browse(backend.log, name, since=since, limit=_ROWS, partition=partition, skip=skip)
    more = None
    if len(messages) == _ROWS:
        last = messages[-1].at
        shown = sum(each.at == last for each in messages) + (skip if last == since else 0)  # of that moment
        onward = {"since": last.strftime("%Y-%m-%dT%H:%M:%S.%f"), "partition": partition, "skip": shown}
        more = address(f"/topics/{name}", **onward)
    values = {"topic": name, "since": since.strftime("%Y-%m-%dT%H:%M:%S"), "partition": partition, "problem": problem}
    return RenderedPage("messages.html", {**values, "messages": messages, "whole": whole, "more": more})


async def webhooks(visit: Visit) -> RenderedPage:
    return RenderedPage("webhooks.html", {"endpoints": await visit.parts.webhooks.endpoints(None)})


async def webhook(visit: Visit) -> RenderedPage:
    endpoint = await visit.parts.webhooks.get(visit.request.path_params["id"], workspace_id=None)
    before, tried = positive(visit.query("before"), LARGEST_ID), visit.query("tried") == "yes"
    named = visit.query("status")
    status = DeliveryStatus(named) if named in set(DeliveryStatus) else None
    found = await visit.parts.webhooks.deliveries(
        endpoint.id, workspace_id=None, status=status, before=before, limit=_ROWS + 1, tried=tried
    )
    onward = {"status": status, "tried": "yes" if tried else None}
    more = address(f"/webhooks/{endpoint.id}", **onward, before=found[_ROWS - 1].id) if len(found) > _ROWS else None
    values = {"endpoint": endpoint, "deliveries": found[:_ROWS], "more": more}
    return RenderedPage("webhook.html", {**values, "status": status, "statuses": list(DeliveryStatus), "tried": tried})


async def change_webhook(visit: Visit) -> Go:
    endpoint_id, registry = visit.request.path_params["id"], visit.parts.webhooks
    match visit.form.text("do"):
        case "enable":
            await registry.enable(endpoint_id, workspace_id=None)
            said = "It is posted to again, events from now on."
        case "disable":
            await registry.disable(endpoint_id, workspace_id=None)
            said = "The webhook is disabled; its pending deliveries are stopped."
        case "resend" if (await registry.get(endpoint_id, workspace_id=None)).enabled:
            delivery = positive(visit.form.text("delivery"), LARGEST_ID) or 0
            await registry.resend(endpoint_id, delivery, workspace_id=None)
            said = f"Delivery {delivery} is sent again soon."
        case "resend":
            said = "Nothing is sent to a disabled endpoint: enable it first."
        case _:
            said = NO_SUCH_ACTION
    return Go(address(f"/webhooks/{endpoint_id}"), said)


async def audit(visit: Visit) -> RenderedPage:
    who, action, workspace = visit.query("who"), visit.query("action"), visit.query("workspace")
    wanted, before = AuditFilter(None, who or None, action or None, workspace or None), visit.query("before")
    found = await visit.parts.backend.trail.entries(wanted, before=positive(before, LARGEST_ID), limit=_ROWS + 1)
    more = None
    if len(found) > _ROWS:
        more = address("/audit", who=who, action=action, workspace=workspace, before=found[_ROWS - 1].number)
    values = {"entries": found[:_ROWS], "details_of": details_of, "more": more}
    return RenderedPage("audit.html", {**values, "who": who, "action": action, "workspace": workspace})
