"""How long each workspace keeps its guests' data."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

MAX_DAYS: Final = 36_500
MAX_DELIVERY_DAYS: Final = 30
"""After which the notifier deletes every delivery that ended."""


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Days; None means forever, or the maximum for deliveries.

    `reservation_days`: from the guest's departure (if confirmed) or the outcome until the guest's data is removed.
    `delivery_days`: from the end of a webhook delivery until it is deleted. `dead_letter_days`: from the failure of a submission
    until its guest's data is removed, after which its dead letter can no longer be replayed.
    """

    workspace_id: str
    reservation_days: int | None = None
    delivery_days: int | None = None
    dead_letter_days: int | None = None


class RetentionPolicies(Protocol):
    """The policies of all workspaces. Raises `TenancyUnavailable`."""

    async def policies(self, workspace_id: str | None = None) -> Sequence[RetentionPolicy]:
        """The policies of one workspace or all, ordered by id. Raises `NotKnown` if there is no such workspace."""
        ...

    async def set_policy(self, policy: RetentionPolicy) -> None:
        """Sets the policy. Raises `NotKnown` if there is no such workspace."""
        ...

    async def account_workspaces(self) -> dict[str, str]:
        """The workspace of each integration account, by the account's id."""
        ...

    async def endpoint_workspaces(self) -> dict[str, str]:
        """The workspace of each webhook endpoint, by the endpoint's id."""
        ...
