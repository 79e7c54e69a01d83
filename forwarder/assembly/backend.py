"""What every process and command works with: the log and the database, embedded or distributed, chosen by the settings, opened,
migrated and closed; and the secrets and keys that this process was given, checked against those of its deployment."""

import asyncio
import fcntl
import os
import secrets
import stat
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import get_args
from urllib.parse import quote

from forwarder.http.messages import Admission
from forwarder.observability.tracing import Tracer
from forwarder.oversight.audit import Audit
from forwarder.process.clock import Clock, SystemClock
from forwarder.reservation.submission import RequestIds, shadow_id
from forwarder.settings import BadSettings, Distributed, Embedded, Settings
from forwarder.simulator.world import SITES
from forwarder.store.deployment import AuditTrail
from forwarder.store.engine import Engine, open_engine
from forwarder.store.lists.overview import Overview
from forwarder.store.migrate import make_roles, migrate, require_current
from forwarder.store.submissions.repairs import Repairs
from forwarder.tenancy.access import Access, BadTokens
from forwarder.tenancy.port import Account, Sealer, TenancyUnavailable
from forwarder.tenancy.sealing import KeyPair, Keyring, PublicKeySealer, Secret, UnknownSecret, active_of, of_credential
from forwarder.tenancy.sql.admin import TenancyAdmin
from forwarder.tenancy.sql.database import SharedKey, shared_key, shared_keys
from forwarder.tenancy.sql.directory import SqlDirectory
from forwarder.tenancy.sql.secrets import SealingKeys, SqlSecrets
from forwarder.topics.codec import MessageSigner
from forwarder.topics.embedded.log import EmbeddedLog
from forwarder.topics.kafka.log import KafkaLog
from forwarder.topics.port import Log
from forwarder.topics.traced import TracedLog

_NOT_GIVEN = (
    "FORWARDER_SECRET_KEY is missing: the keys that cards and credentials are sealed to are derived from it. "
    "Set it, for migrate and every worker alike, to what `forwarder secret generate` prints."
)


@dataclass(frozen=True, slots=True)
class Backend:
    """The log and the database, open."""

    settings: Settings
    clock: Clock
    log: Log
    tracer: Tracer | None
    engine: Engine
    directory: SqlDirectory
    access: Access
    admission: Admission
    tenancy: TenancyAdmin
    overview: Overview
    repairs: Repairs
    audit: Audit
    trail: AuditTrail
    keyring: Keyring | None  # the deployment's secrets, in a process that has them
    keys: Mapping[str, str] = field(repr=False)  # of ids, messages and tokens, as the database had them when opened

    async def sealer(self) -> Sealer:
        """The sealer of credentials for the workers. Raises `BadSettings`, `NoSecretYet`, `NotTrusted`."""
        if self.keyring is not None:
            return self.keyring
        return PublicKeySealer((await SqlSecrets(self.engine).trusted_keys(self.trusted_keys())).accounts_key)

    async def webhook_sealer(self) -> Sealer:
        """The sealer of webhooks' secrets for the notifier. Raises as `sealer`, and `UnknownSecret`."""
        if self.keyring is not None:
            return PublicKeySealer(self.keyring.active.webhooks.public_key)
        if pairs := self.notifier_pairs():
            # The process's own key: the public keys in the database need not be trusted.
            return PublicKeySealer((await self.notifier_key(pairs)).public_key)
        return PublicKeySealer((await SqlSecrets(self.engine).trusted_keys(self.trusted_keys())).webhooks_key)

    def required_keyring(self) -> Keyring:
        if self.keyring is None:
            raise BadSettings(_NOT_GIVEN)
        return self.keyring

    def trusted_keys(self) -> Collection[bytes]:
        """The verify keys whose signatures on public keys this process trusts. Raises `BadSettings` if there are none."""
        if self.keyring is not None:
            return {secret.verify_key for secret in self.keyring.held.values()}
        if not self.settings.secrets.verify_keys:
            raise BadSettings(
                "FORWARDER_SEALING_VERIFY_KEY is missing: this process has no secret, and needs it to verify that the keys in the "
                "database are yours. `forwarder secret status`, run with FORWARDER_SECRET_KEY set, prints it."
            )
        return set(self.settings.secrets.verify_keys)

    def notifier_pairs(self) -> Sequence[KeyPair]:
        """The key pairs that open webhooks' secrets; empty if this process was given none."""
        if self.settings.secrets.notifier_keys:
            return [KeyPair.of(key) for key in self.settings.secrets.notifier_keys]
        return [] if self.keyring is None else [secret.webhooks for secret in self.keyring.held.values()]

    async def notifier_key(self, pairs: Sequence[KeyPair]) -> KeyPair:
        """The one of `pairs` that webhooks' secrets are sealed to now. Raises `UnknownSecret`."""
        active = active_of(await SqlSecrets(self.engine).known())
        present = next((pair for pair in pairs if active and pair.public_key == active.keys.webhooks_key), None)
        if present is None:
            used = "none yet" if active is None else active.id
            raise UnknownSecret(
                f"FORWARDER_NOTIFIER_KEY is not of the secret that this deployment uses: {used}. `forwarder secret status "
                "--notifier-key`, run with that secret, prints the right one."
            )
        return present

    async def request_ids(self) -> RequestIds:
        return RequestIds(await shared_key(self.engine, "request-id-key"))

    async def signer(self) -> MessageSigner:
        return MessageSigner(await shared_key(self.engine, "message-key"))

    async def has_our_keys(self) -> bool:
        """Whether the database has the keys that this process works with: one that was recreated, not restored, has others. True if
        it cannot be asked, or has none yet."""
        try:
            now = await shared_keys(self.engine)
        except TenancyUnavailable:
            return True
        return all(now.get(name, value) == value for name, value in self.keys.items())

    def pushing_directory(self) -> SqlDirectory:
        """Accounts with their credentials, which only workers' database role may read."""
        return SqlDirectory(self.engine, self.clock, shadow=_shadows(self.settings, self.keyring), for_pushes=True)

    async def create_topics(
        self, partitions: int | None = None, *, retention: timedelta | None = None, replicas: int | None = None
    ) -> Sequence[str]:
        """Creates missing topics; returns their names. Raises as `TopicAdmin.create`."""
        counts = dict.fromkeys(self.settings.topics.all(), partitions or self.settings.environment.partitions)
        async with self.log.admin() as admin:
            return await admin.create(counts, retention=retention, replicas=replicas)


def shadows(simulator_url: str | None, seal: Callable[[str, str], str] | None) -> Callable[[Account], Account]:
    """Makes the shadow of an integration account, which test keys use: its kind, or a simulated one in its place, with the
    simulator's address, credential and options, never paused, and at the kind's own rate. It has none of its account's secrets, and
    keeps the account settings that its requests are checked against: the deadline, the duplicate window and the checks.
    `simulator_url`: None without a simulator; then the address is empty and nothing can be sent. `seal`: seals to the workers' key;
    without it, a shadow cannot receive pushes."""
    # Once per text: a new seal would make the account look changed.
    sealed = cache(seal or (lambda *_: ""))

    def shadow_of(account: Account) -> Account:
        kind = account.kind if account.kind in SITES else "generic"
        identifier = shadow_id(account.id)
        base_url = "" if simulator_url is None else f"{simulator_url}/{quote(identifier, safe='')}/{SITES[kind]}"
        shadow = Account(
            identifier,
            account.workspace_id,
            kind,
            base_url,
            "",
            deadline_seconds=account.deadline_seconds,
            duplicate_window_seconds=account.duplicate_window_seconds,
            similar=account.similar,
            skipped_checks=account.skipped_checks,
        )
        return replace(shadow, credential=sealed("a-simulated-credential", of_credential(shadow)))

    return shadow_of


def _shadows(settings: Settings, keyring: Keyring | None) -> Callable[[Account], Account]:
    return shadows(settings.environment.simulator_url, None if keyring is None else keyring.seal_text)


def held_secrets(settings: Settings) -> Sequence[Secret]:
    """The secrets of this process, the current one first; it may have none. An embedded forwarder creates its own."""
    present, earlier = settings.secrets.present, settings.secrets.earlier
    if present is None and isinstance(settings.backend, Embedded):
        present = secret_in(settings.backend.data_dir)
    if present is None and earlier:
        raise BadSettings(_NOT_GIVEN)
    return [] if present is None else [Secret.from_text(text) for text in dict.fromkeys((present, *earlier))]


def required_secrets(settings: Settings) -> Sequence[Secret]:
    """`held_secrets`, for processes that need one. Raises `BadSettings` if there is none."""
    if not (held := held_secrets(settings)):
        raise BadSettings(_NOT_GIVEN)
    return held


async def _open_keyring(engine: Engine, held: Sequence[Secret], *, first: bool) -> Keyring | None:
    """The keyring of this process, if it has a secret. `first`: registers the first secret of a new database, and publishes keys to
    seal cards to. Raises `UnknownSecret`."""
    if not held:
        return None
    keyring = Keyring(held)
    if active := active_of(await SqlSecrets(engine).admit(held, first=first)):
        keyring.activate(active.id)
    if first:
        await SealingKeys(engine, keyring).publish(now=SystemClock().now())
    return keyring


@asynccontextmanager
async def open_log(
    backend: Embedded | Distributed, *, partitions: int, session_seconds: float = 10.0, member: str | None = None
) -> AsyncIterator[Log]:
    """The log. Its parts connect when they are opened."""
    match backend:
        case Embedded(data_dir):
            make_private(data_dir)
            yield EmbeddedLog(data_dir / "log.sqlite3", partitions=partitions)
        case Distributed(bootstrap_servers, kafka_security=security):
            yield KafkaLog(bootstrap_servers, security=security, session_timeout_seconds=session_seconds, member=member)


@asynccontextmanager
async def open_backend(
    settings: Settings, *, any_secret: bool = False, tracer: Tracer | None = None
) -> AsyncIterator[Backend]:
    """The backend, migrated: an embedded one migrates itself. Raises `NotMigrated`, `StoreUnavailable`, and `UnknownSecret` unless
    `any_secret` is given, for commands that manage secrets. `tracer`: records spans of the log's messages."""
    where, clock, environment = database_of(settings), SystemClock(), settings.environment
    embedded = isinstance(settings.backend, Embedded)
    if isinstance(settings.backend, Embedded):
        make_private(settings.backend.data_dir)
        await migrate(where)
    engine = open_engine(where)
    try:
        await require_current(engine)
        held = held_secrets(settings)
        if any_secret:
            keyring = Keyring(held) if held else None
        else:
            keyring = await _open_keyring(engine, held, first=embedded)
        partitions, seconds = environment.partitions, environment.session_seconds
        opened = open_log(settings.backend, partitions=partitions, session_seconds=seconds, member=settings.member_name)
        async with opened as log:
            trail = AuditTrail(engine)
            audit = Audit(trail, clock)
            directory = SqlDirectory(engine, clock, shadow=_shadows(settings, keyring))
            yield Backend(
                settings=settings,
                clock=clock,
                log=log if tracer is None else TracedLog(log, tracer, "embedded" if embedded else "kafka"),
                tracer=tracer,
                engine=engine,
                directory=directory,
                access=Access(directory, clock, BadTokens(clock, environment.bad_tokens_per_minute)),
                admission=settings.admission(),
                tenancy=TenancyAdmin(engine, audit.operation),
                overview=Overview(engine),
                repairs=Repairs(engine),
                audit=audit,
                trail=trail,
                keyring=keyring,
                keys=await shared_keys(engine),
            )
    finally:
        await engine.dispose()


def migrate_backend(settings: Settings) -> Sequence[str]:
    """Upgrades the database, and registers the secret in a new one; returns the applied revisions. Raises `UnknownSecret`."""
    held = required_secrets(settings)

    async def run() -> Sequence[str]:
        applied = await migrate(database_of(settings))
        engine = open_engine(database_of(settings))
        try:
            await _open_keyring(engine, held, first=True)
            # Created now, so that no stage needs write access to them.
            for name in get_args(SharedKey):
                await shared_key(engine, name)
        finally:
            await engine.dispose()
        return applied

    return asyncio.run(run())


def make_database_roles(settings: Settings) -> Sequence[str]:
    """Creates a role for each stage in a migrated database; returns their names. Raises `CannotMakeRoles`."""
    return asyncio.run(make_roles(database_of(settings)))


def database_of(settings: Settings) -> str | Path:
    """Where the database is: a URL, or a file."""
    match settings.backend:
        case Embedded(data_dir):
            return data_dir / "store.sqlite3"
        case Distributed(_, database_url):
            return database_url


# --- the data directory of an embedded forwarder: private to its user, locked against a second process ---


class AlreadyRunning(RuntimeError):
    """Another process uses the data directory. The message names it."""


class NotPrivate(RuntimeError):
    """The directory, or a file in it, cannot be used safely. The message says which, and how to fix it."""


def make_private(data_dir: Path) -> None:
    """Creates the directory and makes it and its files private to this user, whatever the umask; later files of this process are
    private too. Raises `NotPrivate` if it belongs to another user, or has a symbolic link among its files, which may lead
    anywhere."""
    os.umask(stat.S_IRWXG | stat.S_IRWXO)
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotPrivate(f"The data directory {data_dir} cannot be made: {error.strerror}.") from error
    if data_dir.stat().st_uid != os.geteuid():
        raise NotPrivate(f"The data directory {data_dir} belongs to another user: choose one of your own.")
    data_dir.chmod(stat.S_IRWXU)
    for file in data_dir.iterdir():
        if file.is_symlink():
            raise NotPrivate(f"{file} is a symbolic link: the data directory must hold its files itself.")
        if file.is_file():
            file.chmod(stat.S_IRUSR | stat.S_IWUSR)


@contextmanager
def alone_in(data_dir: Path) -> Iterator[None]:
    """Locks the directory against other processes; the lock ends with the process, however that ends. Raises `AlreadyRunning`."""
    make_private(data_dir)
    with (data_dir / "up.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(f"a forwarder already runs on the data directory {data_dir}") from None
        yield


def secret_in(data_dir: Path) -> str:
    """The directory's own secret (mode 0600), generated if there is none. Raises `NotPrivate` for an empty one."""
    path = data_dir / "secret.key"
    if not path.exists():
        made = path.with_suffix(".new")  # whole, or not there
        made.touch(mode=0o600)
        made.write_text(secrets.token_urlsafe(32), encoding="ascii")
        made.replace(path)
    secret = path.read_text(encoding="ascii").strip()
    if not secret:
        raise NotPrivate(f"{path} is empty: restore it from a backup, or remove it if this deployment has never run.")
    return secret
