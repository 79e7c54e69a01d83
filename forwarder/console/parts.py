"""The parts of the console: ports and operations, assembled by `assembly`."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from forwarder.operate.submissions.look_up import LookUps
from forwarder.operate.submissions.search import SubmissionSearch
from forwarder.operate.tenants.accounts import Accounts
from forwarder.operate.tenants.probe import Prober
from forwarder.oversight.audit import Audit
from forwarder.oversight.backlog import Group
from forwarder.process.clock import Clock
from forwarder.store.audit.port import AuditTrail
from forwarder.store.lists.port import Overview
from forwarder.store.processes.port import ProcessReader
from forwarder.store.standing.port import StandingReader
from forwarder.store.submissions.port import Repairs
from forwarder.store.webhooks.port import DeliveryEntry, DeliveryStatus, SubmissionDeliveries
from forwarder.tenancy.access import Access
from forwarder.tenancy.port import Directory, TenancyAdmin
from forwarder.tenancy.webhooks import Endpoint
from forwarder.topics.port import Log, Topics
from forwarder.topics.signing import MessageSigner


class Webhooks(Protocol):
    """The management of webhooks; changes are audited. `workspace_id` None: the operator, who may use any endpoint. Raises
    `NotKnown`."""

    async def endpoints(self, workspace_id: str | None) -> Sequence[Endpoint]: ...
    async def get(self, endpoint_id: str, *, workspace_id: str | None) -> Endpoint: ...
    async def enable(self, endpoint_id: str, *, workspace_id: str | None) -> Endpoint: ...
    async def disable(self, endpoint_id: str, *, workspace_id: str | None) -> Endpoint: ...
    async def deliveries(
        self,
        endpoint_id: str,
        *,
        workspace_id: str | None,
        status: DeliveryStatus | None = None,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
        tried: bool = False,
    ) -> Sequence[DeliveryEntry]: ...
    async def resend(self, endpoint_id: str, delivery_id: int, *, workspace_id: str | None) -> DeliveryEntry: ...


@dataclass(frozen=True, slots=True)
class ConsoleParts:
    """The ports of the console."""

    access: Access
    clock: Clock
    log: Log
    topics: Topics
    signer: MessageSigner
    groups: Sequence[Group]
    directory: Directory
    tenancy: TenancyAdmin
    accounts: Accounts
    overview: Overview
    search: SubmissionSearch
    standing: StandingReader
    processes: ProcessReader
    prober: Callable[[], AbstractAsyncContextManager[Prober]]
    look_ups: Callable[[], AbstractAsyncContextManager[LookUps]]
    deliveries: SubmissionDeliveries
    repairs: Repairs
    audit: Audit
    trail: AuditTrail
    webhooks: Webhooks
