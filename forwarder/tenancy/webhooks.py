"""The port for workspaces' webhook endpoints. Every method may also raise `TenancyUnavailable`."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

MAX_ENDPOINTS: Final = 50
"""Per workspace."""

MAX_PREVIOUS_SECRETS: Final = 4
"""Per endpoint, including the one replaced last. A further rotation ends the one that would expire first."""


class TooManyEndpoints(ValueError):
    """The workspace has the maximum number of endpoints. The message names it."""


class Disabled(StrEnum):
    """Why an endpoint is disabled: it returned 410, failed for days, or was disabled by hand."""

    GONE = "gone"
    FAILING = "failing"
    BY_HAND = "by_hand"


@dataclass(frozen=True, slots=True)
class PreviousSecret:
    """A replaced secret, sealed. It still signs until the moment promised when it was replaced."""

    secret: str = field(repr=False)
    until: datetime


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One URL of one workspace. `types`: the event types it subscribes to, None for all. `secret` is sealed. `previous`: at most
    `MAX_PREVIOUS_SECRETS` replaced secrets, the one that expires last first; some may have expired."""

    id: str
    workspace_id: str
    url: str
    types: tuple[str, ...] | None
    description: str
    enabled: bool
    disabled_reason: str | None
    disabled_at: datetime | None
    secret: str = field(repr=False)
    created_at: datetime
    previous: tuple[PreviousSecret, ...] = ()

    @property
    def previous_until(self) -> datetime | None:
        """When the last of the replaced secrets stops signing."""
        return self.previous[0].until if self.previous else None

    def takes(self, kind: str) -> bool:
        """Whether it subscribes to events of that type."""
        return self.types is None or kind in self.types


class EndpointReader(Protocol):
    """The notifier's side. Never cached: a change takes effect at once."""

    async def any_enabled(self) -> bool:
        """Whether any workspace has an enabled endpoint."""
        ...

    async def enabled_of(self, workspace_ids: Collection[str]) -> Sequence[Endpoint]:
        """The enabled endpoints of these workspaces."""
        ...

    async def endpoint(self, endpoint_id: str) -> Endpoint | None: ...

    async def disable(self, endpoint_id: str, reason: Disabled, *, now: datetime) -> bool:
        """Stop posting to it. False where it was disabled already, or is unknown."""
        ...


class EndpointAdmin(EndpointReader, Protocol):
    """Changes to endpoints by their owner or an operator. Returns the changed endpoint, None if there is none."""

    async def add(self, endpoint: Endpoint) -> None:
        """Raises `NotKnown` (no such workspace), `TooManyEndpoints`."""
        ...

    async def of(self, workspace_id: str | None) -> Sequence[Endpoint]:
        """The endpoints of one workspace, or all; oldest first."""
        ...

    async def change(
        self, endpoint_id: str, *, url: str, types: Sequence[str] | None, description: str
    ) -> Endpoint | None: ...

    async def enable(self, endpoint_id: str) -> Endpoint | None: ...

    async def rotate(self, endpoint_id: str, secret: str, *, previous_until: datetime | None) -> Endpoint | None:
        """Signs with `secret`, which is sealed. The replaced one also signs until `previous_until`, and older ones until their own
        time; None ends all of them at once."""
        ...

    async def remove(self, endpoint_id: str) -> bool:
        """False where there was none."""
        ...
