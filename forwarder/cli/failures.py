"""The exit code and message of a failed command. Imported only after a failure."""

from errno import ENOSPC

from forwarder.assembly.backend import AlreadyRunning, NotPrivate
from forwarder.operate.output import Failed, WrongUsage
from forwarder.operate.tenants.accounts import NotEncrypted
from forwarder.pms.port import BadOptions
from forwarder.settings import BadSettings
from forwarder.store.database import NotReadable
from forwarder.store.engine import UnusableDatabase
from forwarder.store.migrate import CannotMakeRoles, NotMigrated
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy.port import AlreadyExists, ChangedMeanwhile, InUse, NotKnown, TenancyUnavailable
from forwarder.tenancy.sealing import NotTrusted, UnknownSecret
from forwarder.tenancy.sql.secrets import NoSecretYet
from forwarder.topics.port import LogUnavailable, MessageTooLarge

_REFUSED = (Failed, AlreadyExists, ChangedMeanwhile, InUse, NotKnown, NotTrusted, UnknownSecret, MessageTooLarge)
_NOT_READY = (CannotMakeRoles, NotMigrated, NotReadable, NoSecretYet, UnusableDatabase, AlreadyRunning, NotPrivate)
_UNAVAILABLE = {StoreUnavailable: "database", TenancyUnavailable: "database", LogUnavailable: "log"}


def _of_this_machine(error: Exception) -> bool:
    """A full disk, or a file that cannot be used."""
    return isinstance(error, OSError) and (error.errno == ENOSPC or error.filename is not None)


def message(error: Exception) -> str:
    """The text for the operator. In an outage it says what is unavailable, and what to do."""
    if isinstance(error, OSError) and _of_this_machine(error):
        return f"{error.filename or 'the output cannot be written'}: {error.strerror}"
    if (what := _UNAVAILABLE.get(type(error))) is None:
        return str(error)
    reason = str(error).removeprefix("Error: ")  # the driver's class, which says nothing
    return f"the {what} is unavailable: {reason}. Repeat the command when it is back; `forwarder doctor` checks the connection."


def exit_code(error: Exception) -> int | None:
    """2 for wrong usage, 1 for a failure; None for a bug."""
    if isinstance(error, BadOptions | BadSettings | NotEncrypted | WrongUsage):
        return 2
    return 1 if isinstance(error, (*_REFUSED, *_NOT_READY, *_UNAVAILABLE)) or _of_this_machine(error) else None
