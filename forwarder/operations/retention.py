"""For how long a workspace keeps its guests' data: shown, and set, which is audited. The workers' sweeper carries it out."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from forwarder.operations.audit import Audit
from forwarder.tenancy.retention import RetentionPolicies, RetentionPolicy


class Retention:
    """Raises `NotKnown`, `TenancyUnavailable`."""

    def __init__(self, policies: RetentionPolicies, audit: Audit) -> None:
        self._policies = policies
        self._audit = audit

    async def policies(self, workspace_id: str | None = None) -> Sequence[RetentionPolicy]:
        """Of one workspace, or all."""
        return await self._policies.policies(workspace_id)

    async def set(self, workspace_id: str, changes: Mapping[str, Any]) -> RetentionPolicy:
        """Change what `changes` names: fields of `RetentionPolicy`. The policy as it is then."""
        async with self._audit.operation("retention.set", workspace=workspace_id, **changes):
            (policy,) = await self._policies.policies(workspace_id)
            changed = replace(policy, **changes)
            await self._policies.set_policy(changed)
        return changed
