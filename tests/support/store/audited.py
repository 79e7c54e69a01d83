"""Audits on a database of a test's own."""

from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.oversight.audit import Audit
from forwarder.process.clock import Clock
from forwarder.store.deployment import AuditTrail


def audit_on(engine: AsyncEngine, clock: Clock) -> Audit:
    """An audit whose trail is in the database of `engine`."""
    return Audit(AuditTrail(engine), clock)
