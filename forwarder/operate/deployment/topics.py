"""The messages of a topic, redacted for operators: ids and addressing are shown; guests' and card data only as present."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

from typer import Argument, Option

from forwarder.assembly.backend import Backend, make_database_roles, migrate_backend
from forwarder.assembly.parts import topic_check
from forwarder.operate.command import Deployment, commands, open_deployment
from forwarder.operate.output import AsJson, Failed, Printed, WrongUsage, listed, show_json, show_lines
from forwarder.reservation.checks.card_numbers import mask
from forwarder.settings import Distributed, Embedded, settings_and_logging
from forwarder.store.deployment import ProcessRegister
from forwarder.topics.codec import Undecodable, decode_data, header
from forwarder.topics.kafka.security import acls, arguments
from forwarder.topics.port import ConsumedMessage, Log, TopicAdmin, moment_of, read_to_end

HIDDEN: Final = "(hidden)"
_MAX_READ: Final = 1_000
_SHOWN: Final = frozenset(
    """
    accountId arrivalDate attempts cancellation cancelledAt code createdAt currency deadlineSeconds departureDate duplicateOf
    duplicateWindowSeconds fingerprint id instance integrationAccountId keyId keyed nights numberOfAdults numberOfChildren
    numberOfGuests numberOfInfants operation pmsReservationId problem propertyId requestId requestedAt reservation revision roomId
    status success test title totalPrice transactionOf type updatedAt workspaceId acceptedAt card
    """.split()
)
"""Members that identify neither a guest nor a card. All others are hidden."""


@dataclass(frozen=True, slots=True)
class SeenMessage:
    """A redacted message. `value` is None if it is not a JSON object: then it may hold anything."""

    partition: int
    offset: int
    at: datetime
    key: str
    kind: str
    size: int
    headers: Mapping[str, str]
    value: Mapping[str, Any] | None


async def browse(
    log: Log, topic: str, *, since: datetime, limit: int, partition: int | None = None, skip: int = 0
) -> tuple[Sequence[SeenMessage], bool]:
    """The first `limit` messages of `topic` that were appended at `since` or later, without the first `skip`, in one partition if
    given, the earliest first; and whether no matching message in between is missing. Reads at most some thousand messages, spread
    over the partitions. Raises `LogUnavailable`."""
    found, read, whole = list[SeenMessage](), 0, True  # redacted at once: a message may have a megabyte
    async with aclosing(read_to_end(log, topic, since=since)) as batches:
        async for batch in batches:
            read += len(batch)
            found += [_seen(each) for each in batch if partition in {None, each.partition}]
            enough = partition is not None and len(found) >= skip + limit
            if read >= _MAX_READ or enough:
                whole = enough
                break
    found.sort(key=lambda each: (each.at, each.partition, each.offset))
    return found[skip:][:limit], whole


def _seen(consumed: ConsumedMessage) -> SeenMessage:
    message = consumed.message
    try:
        value = {name: _masked(name, each) for name, each in decode_data(message).items()}
    except Undecodable:
        value = None
    headers = {name: _text(each.decode("utf-8", "replace")) for name, each in message.headers}
    if "dlt-exception-message" in headers:
        headers["dlt-exception-message"] = HIDDEN  # a PMS's own words, which may quote the guest
    key, kind = _text(message.key.decode("utf-8", "replace")), header(message.headers, "ce_type") or ""
    at = moment_of(consumed.timestamp_ms)
    return SeenMessage(consumed.partition, consumed.offset, at, key, kind, message.size, headers, value)


def _masked(name: str, value: Any) -> Any:
    if value is None or value in ("", [], {}):
        return value
    if name not in _SHOWN:
        return HIDDEN
    if isinstance(value, dict):
        return {inner: _masked(inner, each) for inner, each in value.items()}
    return HIDDEN if isinstance(value, list) else _text(value) if isinstance(value, str) else value


def _text(text: str) -> str:
    return mask(text)[:300]


async def create(
    partitions: Annotated[int | None, Option(min=1, help="Partitions of each topic. By default the setting.")] = None,
    retention_days: Annotated[int | None, Option(min=1, max=3650)] = None,
    replicas: Annotated[int | None, Option(min=1, max=15)] = None,
) -> Printed:
    """Create the topics that do not exist yet.

    retention_days: How many days each topic keeps a message. Default: the brokers' setting.
    replicas: Copies of each message. Default: 3, or as many as there are brokers."""
    retention = None if retention_days is None else timedelta(days=retention_days)
    async with open_deployment(creates=True) as backend:
        if (retention or replicas) and isinstance(backend.settings.backend, Embedded):
            embedded = "the embedded log keeps one copy for 7 days"
            raise WrongUsage(f"--retention-days and --replicas are for Kafka: {embedded}.")
        created = await backend.create_topics(partitions, retention=retention, replicas=replicas)
        async with backend.log.admin() as admin:
            found = await admin.list()
        wanted = partitions or backend.settings.environment.partitions
    lines = [f"Topic {name} created." for name in created]
    for name in backend.settings.topics.all():
        if (has := found.get(name, wanted)) != wanted:
            advice = f"set FORWARDER_PARTITIONS={has}, or add partitions with forwarder topics grow."
            lines.append(f"Topic {name} has {has} partitions, not {wanted}. It is left as it is: {advice}")
    return Printed([{"topic": name} for name in created], "\n".join(lines) or "All topics exist.")


async def grow(
    partitions: Annotated[int, Argument(min=2, max=10_000, help="How many each topic is to have.")],
    yes: Annotated[bool, Option("--yes", help="Do it. Without it, only say whether that can be done.")] = False,
) -> Printed:
    """Give the topics more partitions, so that more workers can share them.

    First stop the ingresses, let the workers read all messages, and stop them, because messages of a property then go to another
    partition: it refuses until that is done. Reservations may wait, and are moved to their new partition. Afterwards set
    FORWARDER_PARTITIONS for all processes, start the workers, then the ingresses."""
    async with open_deployment() as backend:
        topics, moved = backend.settings.topics, 0
        if isinstance(backend.settings.backend, Embedded):
            raise WrongUsage("the embedded log is for one process, which has all of its partitions")
        async with backend.log.admin() as admin:
            found = await admin.list()
            if missing := [name for name in topics.all() if name not in found]:
                raise Failed(f"there is no {', '.join(missing)}: forwarder topics create")
            if found[topics.requests] > partitions:
                raise WrongUsage(f"{topics.requests} has {found[topics.requests]}; partitions cannot be removed")
            small = [name for name in topics.all() if found[name] < partitions]
            first = await _first(backend, admin)
            if yes and not first:
                check = topic_check(backend)
                async with backend.audit.operation("topics.grow", target=topics.requests, partitions=partitions):
                    await admin.grow(dict.fromkeys(small, partitions))
                    moved = await check.move_all(partitions)
    result = {"topics": small, "partitions": partitions, "first": first, "moved": moved, "done": yes and not first}
    if first:
        return Printed(result, (), failed="not yet:\n" + "\n".join(f"- {each}" for each in first))
    names = ", ".join(small) or "no topic"
    if not yes:
        return Printed(result, f"{names} would get {partitions} partitions; --yes does it.")
    done = f"{names} now has {partitions} partitions; {moved:,} waiting submissions moved to theirs"
    then = f"Set FORWARDER_PARTITIONS={partitions} for all processes, start the workers, then the ingresses"
    return Printed(result, f"{done}. {then}.")


async def _first(backend: Backend, admin: TopicAdmin) -> list[str]:
    """What has to be done before keys can get other partitions, in this order."""
    now, topics = backend.clock.now(), backend.settings.topics
    live = [each for each in await ProcessRegister(backend.engine).processes() if not each.silent(now)]
    first = [f"stop the ingress on {each.host}" for each in live if each.role == "ingress"]
    for topic, group, role in (
        (topics.requests, backend.settings.worker.group, "worker"),
        (topics.results, backend.settings.notifier.group, "notifier"),
    ):
        if behind := sum(each.messages for each in await admin.lag(topic, group=group)):
            first.append(f"let a {role} read the {behind:,} unread messages of {topic}: forwarder {role}")
    return first + [f"stop the worker on {each.host}" for each in live if each.role == "worker"]


async def list_topics(backend: Deployment) -> Printed:
    """List the topics and their partitions."""
    async with backend.log.admin() as admin:
        found = await admin.list()
        rows = [{"topic": name, "partitions": found.get(name)} for name in backend.settings.topics.all()]
    return listed(rows, ("topic", "partitions"))


def list_acls(user: str = "User:forwarder-{stage}", command_config: str | None = None, as_json: AsJson = False) -> None:
    """Print the kafka-acls commands that let each stage's Kafka user do what it needs, and nothing else.

    user: The users: {stage} is replaced by ingress, worker, query, notifier, operator.
    command_config: The client properties file for kafka-acls, for its --command-config."""
    settings = settings_and_logging("warning")
    if not isinstance(settings.backend, Distributed):
        raise WrongUsage("ACLs are for Kafka (FORWARDER_KAFKA_BOOTSTRAP_SERVERS): the embedded log has no users.")
    tool = ["kafka-acls.sh", "--bootstrap-server", settings.backend.bootstrap_servers]
    tool += ["--command-config", command_config] if command_config else []
    by_stage = acls(settings.topics, settings.worker.group, settings.notifier.group)
    granted = [(stage, user.replace("{stage}", stage), acl) for stage, allowed in by_stage.items() for acl in allowed]
    if as_json:
        show_json([{"stage": stage, "user": named, **asdict(acl)} for stage, named, acl in granted])
    else:  # unwrapped, to be copied
        show_lines(shlex.join([*tool, *arguments(acl, named)]) for _, named, acl in granted)


def migrate(roles: bool = False) -> Printed:
    """Create or upgrade the database tables. Safe to repeat, and to run concurrently.

    roles: Also create a PostgreSQL role for each stage, with the least privileges."""
    settings = settings_and_logging("warning")
    applied = migrate_backend(settings)
    text = [f"Applied: {', '.join(applied)}." if applied else "Up to date."]
    if not roles:
        return Printed({"applied": list(applied)}, text)
    made = make_database_roles(settings)
    use = f"Make a user for each process: CREATE ROLE … LOGIN PASSWORD … IN ROLE {made[0]}."
    return Printed({"applied": list(applied), "roles": list(made)}, [*text, f"Roles: {', '.join(made)}. {use}"])


COMMANDS = commands(acls=list_acls, create=create, grow=grow, list=list_topics)
