"""Builds the operators' data protection: retention, erasing guests, and purging finished submissions."""

from forwarder.assembly.backend import Backend
from forwarder.operations.privacy.erase import Guests
from forwarder.operations.privacy.retention import Purge, Retention
from forwarder.store.retention import GuestStore, Purger
from forwarder.tenancy.sql.admin import RetentionPolicies


def retention_of(backend: Backend) -> Retention:
    """The workspaces' retention policies."""
    return Retention(RetentionPolicies(backend.engine), backend.audit)


def purge_of(backend: Backend) -> Purge:
    """Deletes submissions that were finished long ago."""
    return Purge(Purger(backend.engine), backend.audit, backend.clock)


def guests_of(backend: Backend) -> Guests:
    """Finds and erases guests."""
    accounts = RetentionPolicies(backend.engine).account_workspaces
    return Guests(
        GuestStore(backend.engine), accounts, backend.log, backend.settings.topics, backend.clock, backend.audit
    )
