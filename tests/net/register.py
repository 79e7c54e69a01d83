"""Whether the statuses that callers read are those of a register, one for each submission: linearizable, after Herlihy and Wing."""

from collections.abc import Sequence

from tests.net.record import Call


def unplaced(writes: Sequence[tuple[float, str]], reads: Sequence[Call]) -> Call | None:
    """The first read that has no place; None if there is none.

    `writes`: when each status was published, by then at the latest it was written; PENDING comes before all. Each read is placed in
    that order between its begin and its end: not before a write that was published before it began, and not before the place of a
    read that ended before it began.
    """
    states = ["PENDING", *(status for _, status in writes)]
    placed: list[tuple[float, int]] = []
    for read in sorted(reads, key=lambda each: each.ended or 0.0):
        place = max((at for ended, at in placed if ended < read.began), default=0)
        place = max(place, sum(at < read.began for at, _ in writes))
        while place < len(states) and not _shows(states[place], read.data["status"]):
            place += 1
        if place == len(states):
            return read
        placed.append((read.ended or 0.0, place))
    return None


def _shows(state: str, seen: str) -> bool:
    """A replay, and a push that an operator asks for, make it PENDING again without an event."""
    return seen == state or (seen == "PENDING" and state in {"FAILED", "IN_DOUBT"})
