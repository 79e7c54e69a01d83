"""Retention, and erasing guests, for operators."""

from forwarder.assembly.backend import Backend
from forwarder.operations.erase import Guests
from forwarder.operations.retention import Retention
from forwarder.store.retention.guests import SqlGuests
from forwarder.tenancy.sql.retention import SqlRetentionPolicies


def retention_of(backend: Backend) -> Retention:
    """For how long workspaces keep their guests' data."""
    return Retention(SqlRetentionPolicies(backend.engine), backend.audit)


def guests_of(backend: Backend) -> Guests:
    """Finds and erases guests."""
    accounts = SqlRetentionPolicies(backend.engine).account_workspaces
    return Guests(
        SqlGuests(backend.engine), accounts, backend.log, backend.settings.topics, backend.clock, backend.audit
    )
