"""The audit of operations: who did what, from where, with what result; for the command line, the HTTP API and the console.

An operation that changes the store is committed in one transaction with its entry: it cannot succeed unaudited. One that
publishes to the log is audited before. Entries contain identifiers, never secrets or guests' data."""

import os
import pwd
import re
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import structlog
from pydantic_core import to_json

from forwarder.process.clock import Clock
from forwarder.process.enlistment import Enlisted, enlist
from forwarder.store.audit import AuditEntry, AuditResult
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy.port import TenancyUnavailable
from forwarder.topics.port import LogUnavailable

if TYPE_CHECKING:
    from forwarder.store.deployment import AuditTrail

_log = structlog.get_logger(__name__)

OUTAGES: Final = (StoreUnavailable, TenancyUnavailable, LogUnavailable)


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts: `operator`, or `key` with its id. `origin`: the host or address. Kind and name: as in `AuditEntry`."""

    kind: str
    name: str
    origin: str

    @classmethod
    def operator(cls) -> "Actor":
        """The operating system's account of this process, not the one in its environment, which any user can set."""
        number = os.getuid()
        try:
            name = pwd.getpwuid(number).pw_name
        except KeyError:  # a container's user may have no name
            name = f"uid {number}"
        return cls("operator", name, socket.gethostname())


_acting: ContextVar[Actor | None] = ContextVar("acting", default=None)


@contextmanager
def acting_as(actor: Actor) -> Iterator[None]:
    """Records `actor` as the one who does everything within the block."""
    token = _acting.set(actor)
    try:
        yield
    finally:
        _acting.reset(token)


@dataclass(slots=True)
class Operation:
    """An operation in progress; `details` may grow until it ends."""

    action: str
    workspace: str | None = None
    target: str | None = None
    details: dict[str, Any] = field(default_factory=dict)


class Audit:
    def __init__(self, trail: "AuditTrail", clock: Clock) -> None:
        self._trail, self._clock = trail, clock

    @asynccontextmanager
    async def operation(
        self, action: str, *, workspace: str | None = None, target: str | None = None, **details: Any
    ) -> AsyncIterator[Operation]:
        """For a block that changes the store: the entry joins the transaction of its first change, or gets one at the end if
        there was none. If the block raises, appends an entry that it was refused, or failed."""
        operation = Operation(action, workspace, target, details)

        async def append_done(connection: Any, facts: Mapping[str, Any]) -> None:
            operation.workspace = facts.get("workspace", operation.workspace)
            operation.target = facts.get("target", operation.target)
            operation.details |= facts.get("details", {})
            await self._trail.append_within(connection, self._entry(operation, AuditResult.DONE))

        enlisted = Enlisted(append_done)
        try:
            with enlist(enlisted):
                yield operation
        except BaseException as error:
            await self._append_failure(operation, error, in_part=enlisted.written)
            raise
        if not enlisted.written:
            await self._trail.append(self._entry(operation, AuditResult.DONE))

    @asynccontextmanager
    async def request(
        self, action: str, *, workspace: str | None = None, target: str | None = None, **details: Any
    ) -> AsyncIterator[Operation]:
        """For a block that sends something to the log: appends a REQUESTED entry before it, and another if the block raises."""
        operation = Operation(action, workspace, target, details)
        await self._trail.append(self._entry(operation, AuditResult.REQUESTED))
        try:
            yield operation
        except BaseException as error:
            await self._append_failure(operation, error, in_part=False)
            raise

    async def note(self, operation: Operation, result: AuditResult) -> None:
        """Appends the result of an operation that takes several steps."""
        await self._trail.append(self._entry(operation, result))

    async def _append_failure(self, operation: Operation, error: BaseException, *, in_part: bool) -> None:
        failed = in_part or isinstance(error, OUTAGES) or not isinstance(error, Exception)
        result = AuditResult.FAILED if failed else AuditResult.REFUSED
        try:
            await self._trail.append(self._entry(operation, result, type(error).__name__))
        except StoreUnavailable as outage:
            _log.warning("audit.failure_not_recorded", action=operation.action, error=str(outage))

    def _entry(self, operation: Operation, result: AuditResult, reason: str | None = None) -> AuditEntry:
        actor = _acting.get() or Actor("system", "forwarder", socket.gethostname())
        # A refused target may be any text, even a guest's name: keep it only if it looks like an identifier.
        real, identifier = result in {AuditResult.DONE, AuditResult.REQUESTED}, re.compile(r"[A-Za-z0-9._~:-]{1,200}")
        workspace_id, target = (
            _text(each) if each is not None and (real or identifier.fullmatch(each)) else None
            for each in (operation.workspace, operation.target)
        )
        return AuditEntry(
            at=self._clock.now(),
            actor_kind=actor.kind,
            actor=_text(actor.name),
            origin=_text(actor.origin),
            action=operation.action,
            result=result.value,
            workspace_id=workspace_id,
            target=target,
            reason=reason,
            details=to_json(operation.details).decode(),
        )


def _text(text: str) -> str:
    """Text that the database accepts, cut to 200 characters."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()[:200]
