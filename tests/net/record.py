"""What callers, PMSs and readers of the results topic saw of one history, and the story of it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, eq=False)
class Intent:
    """One thing that a caller wants: a body for an account, under an idempotency key or without one. `content` identifies the body.
    `calls`: every request that asked for it."""

    number: int
    account: str
    body: Mapping[str, Any]
    content: str
    key: str | None
    calls: "list[Call]" = field(default_factory=list)

    @property
    def accepted(self) -> "list[Call]":
        """The requests for it that were answered with a 2xx, as far as their answers arrived."""
        return [call for call in self.calls if call.status is not None and call.status < 300]

    @property
    def request_id(self) -> str | None:
        """The id that its caller knows it by."""
        return next((call.request_id for call in self.accepted), None)


@dataclass(slots=True, eq=False)
class Call:
    """One HTTP request to an ingress, `door`, which has another number after each restart. `ended` and `status` are None while it
    is under way, and if its answer was lost. `what`: submit, cancel or read."""

    what: str
    door: int
    account: str
    began: float
    intent: Intent | None = None
    target: str = ""
    ended: float | None = None
    status: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def request_id(self) -> str | None:
        """The submission that the answer names."""
        found = self.data.get("requestId")
        if found is None:
            found = self.headers.get("location", "").partition("/submissions/")[2] or None
        return found


@dataclass(slots=True, eq=False)
class Booking:
    """A reservation in a PMS. `guest` is the content it was made from; `kept`: our reference as it is shown; `doubled`: the PMS
    made it a second time by itself."""

    account: str
    pms_id: str
    reference: str
    guest: str
    made_at: float
    shown_at: float
    kept: str = ""
    cancelled_at: float | None = None
    cancelled_by: str = ""
    doubled: bool = False
    hidden: bool = False
    """It is shown without our reference."""
    findable: bool = False
    """The PMS can be asked for it by our reference, which it keeps as it is."""
    told: bool = False
    """Its id was answered."""
    shown_with_double: bool = False
    """One look-up was answered with it and with its double."""


@dataclass(frozen=True, slots=True)
class Create:
    """A create that reached a PMS. `clean`: it was answered in time and clearly, and nothing about the answer was odd."""

    at: float
    account: str
    reference: str
    guest: str
    clean: bool


@dataclass(frozen=True, slots=True)
class Event:
    """An event on the results topic."""

    at: float
    request_id: str
    revision: int
    kind: str
    data: Mapping[str, Any]

    @property
    def status(self) -> str:
        """The submission's from then on."""
        return "CONFIRMED" if self.kind.startswith("cancellation_") else self.kind.upper()


@dataclass(frozen=True, slots=True)
class Trouble:
    """The infrastructure was not well from `begin` to `end`."""

    begin: float
    end: float


@dataclass(slots=True)
class Record:
    """Everything that was seen. `now` is the simulated time; `said` the story so far."""

    intents: list[Intent] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    bookings: list[Booking] = field(default_factory=list)
    creates: list[Create] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    losses: list[tuple[float, float]] = field(default_factory=list)
    """From when the store lacked transactions until it was recovered."""
    gone: dict[str, float] = field(default_factory=dict)
    """Request ids of messages that the log lost before workers received them, and when."""
    unseen: set[str] = field(default_factory=set)
    """Those among them that nobody can miss: their offsets were given to others."""
    traceless: set[str] = field(default_factory=set)
    """Request ids under way when the store went back and offsets were set back, too: neither store nor log knows of a push."""
    noticed: bool = False
    """Whether the deployment said that messages are gone."""
    unwell: set[str] = field(default_factory=set)
    """Accounts whose PMS, or whose settings, had odd habits at some time."""
    changed: set[str] = field(default_factory=set)
    """Accounts that operators pointed elsewhere, or whose credential or mapping they changed."""
    interventions: set[str] = field(default_factory=set)
    """Request ids that an operator settled or pushed again."""
    replays: dict[str, int] = field(default_factory=dict)
    """How often the dead letter of an event was put back."""
    ended: list[str] = field(default_factory=list)
    """Processes that ended by themselves, and errors that nobody handled."""
    said: list[str] = field(default_factory=list)
    repaired_at: float = 0.0
    """When the end began, which stops workers in good order."""
    finished_at: float = 0.0

    def say(self, now: float, text: str) -> None:
        """One more line of the story."""
        self.said.append(f"{now:9.2f}  {text}")

    def calm(self, begin: float, end: float) -> bool:
        """Whether the infrastructure was well all that time."""
        return not any(trouble.begin <= end and begin <= trouble.end for trouble in self.troubles)

    def untraceable(self) -> set[str]:
        """References of bookings that nobody can find again: the PMS does not show them by reference, though it is said to, and
        their ids may not have arrived. A known gap of the guarantees."""
        hidden = [each for each in self.bookings if each.hidden]
        lost = [each for each in hidden if not (each.told and self.calm(each.made_at - 5.0, each.made_at + 40.0))]
        return {each.reference for each in lost} | self.traceless

    def undisturbed(self) -> bool:
        """Whether the infrastructure was well until the end."""
        return all(trouble.begin >= self.repaired_at for trouble in self.troubles)

    def lost_sight_of(self) -> set[str]:
        """References that stand in a PMS once, where it can be asked for them: a doubt about these must end."""
        standing = [each for each in self.bookings if each.cancelled_at is None and each.account not in self.changed]
        count = Counter(each.reference for each in standing)
        return {each.reference for each in standing if each.findable and count[each.reference] == 1}

    def trusted(self, begin: float, end: float) -> bool:
        """Whether the store had everything it had acknowledged, all that time."""
        return not any(lost <= end and begin <= found for lost, found in self.losses)


def short(request_id: str) -> str:
    """An id as a story shows it: enough to tell it from others."""
    return f"rsv..{request_id.removeprefix('rsv_')[-5:]}" if "." not in request_id else f"rsv..{request_id[-7:]}"
