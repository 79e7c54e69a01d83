"""What the simulated PMSs made, by the simulator's own journal: written before anything is answered, so nothing is left out."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

from pydantic_core import from_json


class Bookings:
    """Reads the journal on from where it was left. A line that is not finished yet is left for the next time."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._read = 0
        self._made: Counter[str] = Counter()
        self._by_account: dict[str, Counter[str]] = defaultdict(Counter)
        self._held: dict[int, tuple[str, str]] = {}

    def of(self, account: str) -> Mapping[str, int]:
        """How often a booking of each reference was made at the account's PMS, up to now."""
        self._read_on()
        return self._by_account[account]

    def held(self, account: str) -> set[str]:
        """The references of the bookings that the account's PMS holds now: made, and not cancelled since."""
        self._read_on()
        return {reference for name, reference in self._held.values() if name == account}

    def made(self, accounts: Mapping[str, str]) -> int:
        """How many bookings were made in all these accounts, up to now."""
        self._read_on()
        return sum(self._made[account] for account in accounts)

    def _read_on(self) -> None:
        if not self._journal.exists():
            return
        with self._journal.open("rb") as file:
            file.seek(self._read)
            written = file.read()
        finished = written.rfind(b"\n") + 1
        self._read += finished
        for line in written[:finished].splitlines():
            entry = from_json(line)
            if "reference" in entry:
                self._made[entry["name"]] += 1
                self._by_account[entry["name"]][entry["reference"]] += 1
                self._held[entry["id"]] = (entry["name"], entry["reference"])
            elif "cancelled" in entry:
                self._held.pop(entry["cancelled"], None)
