"""Where customers want the results of a workspace posted, as the stages see it. Nothing of how it is kept.

Raises, besides what is named, `TenancyUnavailable`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

MOST_ENDPOINTS: Final = 50
"""Of one workspace: each is sent every result."""


class TooManyEndpoints(ValueError):
    """The workspace has as many as it may. The message says how many that is."""


class Disabled(StrEnum):
    """Why an endpoint is not posted to: it said so (410), nothing reached it for days, or somebody wanted it."""

    GONE = "gone"
    FAILING = "failing"
    BY_HAND = "by_hand"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address of one workspace. `types`: the events that it takes, None for all. Both secrets are sealed; the previous one
    signs too until `previous_until`."""

    id: str
    workspace_id: str
    url: str
    types: tuple[str, ...] | None
    description: str
    enabled: bool
    disabled_reason: str | None
    disabled_at: datetime | None
    secret: str = field(repr=False)
    previous_secret: str | None = field(repr=False)
    previous_until: datetime | None
    created_at: datetime

    def takes(self, kind: str) -> bool:
        """Whether events of that type are for it."""
        return self.types is None or kind in self.types


class EndpointReader(Protocol):
    """The notifier's side: always from the database, so that a change counts from the moment on at which it was made."""

    async def any_enabled(self) -> bool:
        """Whether any workspace has an endpoint that is not disabled."""
        ...

    async def enabled_of(self, workspace_ids: Collection[str]) -> Sequence[Endpoint]:
        """The endpoints of these workspaces that are not disabled."""
        ...

    async def endpoint(self, endpoint_id: str) -> Endpoint | None: ...

    async def disable(self, endpoint_id: str, reason: Disabled, *, now: datetime) -> bool:
        """Post to it no more. False where it was disabled already, or is not known."""
        ...


class EndpointRegistry(EndpointReader, Protocol):
    """What its owner, or an operator, does to an endpoint. What changes it answers with the endpoint as it is then, or None where
    there is none."""

    async def add(self, endpoint: Endpoint) -> None:
        """Raises `NotKnown` (no such workspace), `TooManyEndpoints`."""
        ...

    async def of(self, workspace_id: str | None) -> Sequence[Endpoint]:
        """Those of one workspace, or all; the oldest first."""
        ...

    async def change(
        self, endpoint_id: str, *, url: str, types: Sequence[str] | None, description: str
    ) -> Endpoint | None: ...

    async def enable(self, endpoint_id: str) -> Endpoint | None: ...

    async def rotate(self, endpoint_id: str, secret: str, *, previous_until: datetime | None) -> Endpoint | None:
        """Sign with `secret`, which is sealed; with the one of before too until then, or not any more."""
        ...

    async def remove(self, endpoint_id: str) -> bool:
        """False where there was none."""
        ...
