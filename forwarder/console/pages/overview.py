"""The first page: what wants attention, how much goes through, and how each PMS does."""

from collections.abc import Sequence
from dataclasses import dataclass

from forwarder.console.guard import Visit
from forwarder.console.parts import ConsoleParts
from forwarder.console.responses import Page
from forwarder.operations.flow import AccountOutcomes, Flow


@dataclass(frozen=True, slots=True)
class _GroupLag:
    group: str
    topic: str
    messages: int


class OverviewPage:
    """How it goes."""

    def __init__(self, parts: ConsoleParts) -> None:
        self._parts = parts
        self._flow = Flow(parts.log, parts.topics, parts.clock)

    async def show(self, _visit: Visit) -> Page:
        flow, lags = await self._flow.read(), await self._lags()
        accounts = await self._parts.tenancy.accounts()
        outcomes = sorted(flow.outcomes.items(), key=lambda each: -_failures(each[1]))
        values = {
            "flow": flow,
            "lags": lags,
            "outcomes": outcomes,
            "paused": [each for each in accounts if each.paused],
        }
        return Page("overview.html", {**values, "now": self._parts.clock.now()})

    async def _lags(self) -> Sequence[_GroupLag]:
        found = []
        async with self._parts.log.admin() as admin:
            for group, topic in self._parts.groups.items():
                held = await admin.offsets(topic)
                at = await admin.committed(topic, group=group)
                behind = sum(each.stop - max(at.get(number, 0), each.start) for number, each in held.items())
                found.append(_GroupLag(group, topic, behind))
        return found


def _failures(outcomes: AccountOutcomes) -> float:
    """The share of outcomes that are no business answer."""
    total = outcomes.kinds.total()
    return (outcomes.kinds["failed"] + outcomes.kinds["in_doubt"]) / total if total else 0.0
