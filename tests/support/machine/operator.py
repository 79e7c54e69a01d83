"""What an operator does: settles what is in doubt, by the truth, and puts dead letters back."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from forwarder.operate.submissions.settle import NotInDoubt, Repair
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.topics.dead_letters import replayed
from forwarder.topics.port import Message
from forwarder.topics.signing import EVENT_ID
from tests.support.machine.worlds.log import TOPICS, GroupLog
from tests.support.machine.worlds.pms import Pmss
from tests.support.machine.worlds.process import Process
from tests.support.machine.worlds.store import Store
from tests.support.memory.audit import memory_audit


class Operator:
    """One who looks into the PMSs before saying anything. `replays` counts, by the event that told of a failure."""

    def __init__(self, log: GroupLog, pmss: Pmss, store: Store, process: Process, host: int) -> None:
        self._log = log
        self._pmss = pmss
        self._store = store
        self._process = process
        self._repair = Repair(store.repairs(process, host), process.clock, memory_audit(process.clock))
        self.replays: Counter[str] = Counter()

    def letters(self) -> Sequence[tuple[str, Message]]:
        """The dead letters that can be put back, by the events that told of those failures."""
        return [
            (value.decode(), letter)
            for letter in self._log.written[TOPICS.dead_letters]
            for name, value in letter.headers
            if name == EVENT_ID
        ]

    def replay(self, event_id: str, letter: Message) -> None:
        """Put it back on its topic."""
        self._log.append(TOPICS.requests, [replayed(letter)])
        self.replays[event_id] += 1

    def settle(self, *, for_good: bool) -> None:
        """Tell the truth of whatever is in doubt. What may still be made is left alone; what was not made is pushed again, or
        turned down `for_good`."""
        (found,) = self._store.read("SELECT request_id FROM reservations WHERE status = 'IN_DOUBT' ORDER BY id")
        for row in found:
            if not self._pmss.under_way[row.request_id]:
                _ = self._process.spawn(self._settle(row.request_id, for_good=for_good))
        self._process.loop.run_for(0.0)

    async def _settle(self, request_id: str, *, for_good: bool) -> None:
        made = self._pmss.made.get(request_id)
        self._pmss.pushes.settle(request_id)
        with suppress(NotInDoubt, StoreUnavailable):
            if made:
                await self._repair.confirm(request_id, made[0])
            elif for_good:
                await self._repair.reject(request_id, "The guest has gone elsewhere.")
            else:
                await self._repair.push_again(request_id, deadline_seconds=3600.0)
