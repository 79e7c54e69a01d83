"""The exit code and message of a failed command. Imported only after a failure."""

from forwarder.operate.deployment.recovery import LeasesInForce
from forwarder.operate.deployment.topic_copy import NoRoom
from forwarder.operate.output import Failed, WrongUsage
from forwarder.operate.tenants.accounts import NotEncrypted
from forwarder.process.data_dir import AlreadyRunning, NotPrivate
from forwarder.settings import BadSettings
from forwarder.store.engine import UnusableDatabase
from forwarder.store.migrate import NotMigrated
from forwarder.store.roles import CannotMakeRoles
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.store.texts import NotReadable
from forwarder.tenancy.port import AlreadyExists, ChangedMeanwhile, InUse, NotKnown, TenancyUnavailable
from forwarder.tenancy.sealing import NotTrusted, UnknownSecret
from forwarder.tenancy.sql.secrets import NoSecretYet
from forwarder.topics.port import LogUnavailable, MessageTooLarge

_WRONG = (BadSettings, NotEncrypted, WrongUsage)
_FAILED = (
    Failed,
    LeasesInForce,
    NoRoom,
    CannotMakeRoles,
    NotMigrated,
    NotReadable,
    NoSecretYet,
    NotTrusted,
    UnknownSecret,
    UnusableDatabase,
    AlreadyRunning,
    NotPrivate,
    AlreadyExists,
    ChangedMeanwhile,
    InUse,
    NotKnown,
    StoreUnavailable,
    TenancyUnavailable,
    LogUnavailable,
    MessageTooLarge,
)


_AGAIN = "Run the command again once it is back; `forwarder doctor` shows what it needs."


def message(error: Exception) -> str:
    """What the operator reads: an outage also says of what, and what to do."""
    if type(error) in {StoreUnavailable, TenancyUnavailable}:
        return f"the database is unavailable: {error}. {_AGAIN}"
    if type(error) is LogUnavailable:
        return f"the log is unavailable: {error}. {_AGAIN}"
    return str(error)


def exit_code(error: Exception) -> int | None:
    """2 for wrong usage, 1 for a failure; None for a bug."""
    if isinstance(error, _WRONG):
        return 2
    return 1 if isinstance(error, _FAILED) else None
