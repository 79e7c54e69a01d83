"""The parts of the console: ports and operations, assembled by `assembly`."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from forwarder.operations.accounts import Accounts
from forwarder.operations.audit import Audit
from forwarder.operations.look_up import LookUps
from forwarder.operations.probe import Prober
from forwarder.operations.show.search import SubmissionSearch
from forwarder.operations.show.standing import Group
from forwarder.process.clock import Clock
from forwarder.store.audit import AuditTrail
from forwarder.store.deliveries import DeliveryEntry, DeliveryStatus
from forwarder.tenancy.access import Access
from forwarder.tenancy.port import Directory, Endpoint, TenancyAdmin
from forwarder.topics.port import Log, Topics
from forwarder.topics.signing import MessageSigner

if TYPE_CHECKING:
    from forwarder.store.delivery_queue import SqlDeliveryLog
    from forwarder.store.deployment import BacklogReader, ProcessRegister
    from forwarder.store.lists.overview import Overview
    from forwarder.store.submissions.repairs import Repairs


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
    overview: "Overview"
    search: SubmissionSearch
    standing: "BacklogReader"
    processes: "ProcessRegister"
    prober: Callable[[], AbstractAsyncContextManager[Prober]]
    look_ups: Callable[[], AbstractAsyncContextManager[LookUps]]
    deliveries: "SqlDeliveryLog"
    repairs: "Repairs"
    audit: Audit
    trail: AuditTrail
    webhooks: Webhooks
