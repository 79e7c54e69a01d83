"""A simulated PMS of a test's own, the account that speaks to it, and what each kind says in words of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from forwarder.pms.port import UNPACED, AccountConnection, Pace, Pms, PmsDirectory
from forwarder.reservation.booking import Booking
from tests.support.simulator.server import OPTIONS, QuickClock, Simulator, booking

CREDENTIAL = "s3cr3t-credential"


@dataclass(frozen=True, slots=True)
class Wording:
    """`amounts`: what of the price the PMS shows again. `says_how_long`: its 503 can name the wait.
    `says_not_done`: its 503 says that nothing was done, which a gateway would not."""

    amounts: Literal["all", "price", "none"] = "all"
    says_how_long: bool = True
    says_not_done: bool = False


WORDINGS: Final[Mapping[str, Wording]] = {
    "beds24": Wording(amounts="price"),
    "booking-sync": Wording(says_how_long=False),  # X-RateLimit-Reset alone
    "cloudbeds": Wording(amounts="none"),
    "generic": Wording(says_not_done=True),
    "hostaway": Wording(),
    "website-builder": Wording(says_not_done=True),
}
"""Kind → how its simulator, as the PMS does, differs from the others."""


@dataclass(frozen=True, slots=True)
class House:
    """What all tests share: one simulator, and a way to it."""

    simulator: Simulator
    directory: PmsDirectory
    clock: QuickClock


@dataclass(frozen=True, slots=True)
class Site:
    """A simulated PMS of the test's own, and the account that speaks to it."""

    kind: str
    name: str
    house: House

    @property
    def wording(self) -> Wording:
        return WORDINGS[self.kind]

    @property
    def pms(self) -> Pms:
        return self.reach()

    @property
    def made(self) -> int:
        """How many bookings there were made."""
        count: int = self.house.simulator.world.stats()["by_account"][self.name]
        return count

    def reach(
        self,
        directory: PmsDirectory | None = None,
        *,
        credential: str = CREDENTIAL,
        base_url: str | None = None,
        pace: Pace = UNPACED,
    ) -> Pms:
        at = self.house.simulator.base_url(self.kind, self.name) if base_url is None else base_url
        connection = AccountConnection(f"acme-{self.name}", self.kind, at, credential, pace, OPTIONS.get(self.kind, {}))
        return (directory or self.house.directory).connect(connection)

    def go_wrong(self, mode: str, **more: Any) -> None:
        self.house.simulator.go_wrong(mode, self.name, **more)

    def recover(self) -> None:
        self.house.simulator.work(self.name)

    def booking(self, number: int = 1, **fields: Any) -> Booking:
        """A booking whose reference no other test has."""
        asked = booking(number, **fields)
        return replace(asked, reference=f"{asked.reference}-{self.name}")
