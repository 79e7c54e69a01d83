"""For how long each workspace keeps its guests' data."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

MAX_DAYS: Final = 36_500
MAX_DELIVERY_DAYS: Final = 30
"""After which the notifier deletes every delivery that ended."""


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Days; None is for ever, of deliveries for as long as they may be kept.

    `reservation_days`: after a confirmed reservation's guest left, or another's outcome, until its guest's data is removed.
    `delivery_days`: after a webhook delivery ended, until it is deleted. `dead_letter_days`: after a submission FAILED, until its
    guest's data is removed, and its dead letter cannot be replayed any more.
    """

    workspace_id: str
    reservation_days: int | None = None
    delivery_days: int | None = None
    dead_letter_days: int | None = None


class RetentionPolicies(Protocol):
    """The policies of all workspaces. Raises `TenancyUnavailable`."""

    async def policies(self, workspace_id: str | None = None) -> Sequence[RetentionPolicy]:
        """Of one workspace or all, by their ids. Raises `NotKnown` where there is no such workspace."""
        ...

    async def set_policy(self, policy: RetentionPolicy) -> None:
        """Raises `NotKnown` where there is no such workspace."""
        ...

    async def account_workspaces(self) -> dict[str, str]:
        """The workspace of each integration account, by the account's id."""
        ...

    async def endpoint_workspaces(self) -> dict[str, str]:
        """The workspace of each webhook endpoint, by the endpoint's id."""
        ...
