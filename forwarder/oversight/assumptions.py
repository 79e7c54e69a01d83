"""Conditions that the forwarder's guarantees need from Kafka and PostgreSQL, and that it cannot set itself: each with how it is
checked, why, and the remedy. `forwarder doctor` checks them, workers log violations at start, and
docs/operations/assumptions.md is generated from this list.

A session's own settings (isolation level, `synchronous_commit`, time zone) are set on each connection instead.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, cast

from forwarder.topics.port import MAX_MESSAGE_BYTES, TopicState

Severity = Literal["info", "warning", "failed"]

_SAFE_REPLICAS: Final = 3
_SHORTEST_RETENTION: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about a topic, or about the database if `topic` is empty. `settings` under the server's own names; empty for the
    embedded log and store. `standbys`: how many take part in each commit."""

    settings: Mapping[str, str]
    topic: str = ""
    state: TopicState | None = None
    partitions: int = 0
    standbys: int = 0


@dataclass(frozen=True, slots=True)
class Assumption:
    """`checked`: where the value is read. `remedy` may name the topic."""

    name: str
    severity: Severity
    checked: str
    why: str
    remedy: str

    @property
    def subject(self) -> str:
        """What it applies to: a topic, or the database."""
        return "topic" if self.checked.startswith("topic") else "database"


@dataclass(frozen=True, slots=True)
class Broken:
    """An assumption that does not hold."""

    name: str
    severity: Severity
    says: str
    remedy: str


_ALTER: Final = "kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config"


def _broken_state(facts: Facts, state: TopicState) -> Iterator[tuple[str, str]]:
    """By name, what is wrong with the description of a topic."""
    if state.in_sync < state.replicas:
        yield "replicas in sync", f"{state.in_sync} of {state.replicas} replicas are in sync"
    if state.partitions < facts.partitions:
        says = f"{state.partitions} partitions, and the setting says {facts.partitions}: no more workers can share it"
        yield "partitions", says
    if facts.settings and state.replicas < _SAFE_REPLICAS:
        yield "replication factor", f"{state.replicas} replicas: accepted submissions are lost with a broker's disk"
    in_sync = int(facts.settings.get("min.insync.replicas", str(_SAFE_REPLICAS)))
    if state.replicas >= _SAFE_REPLICAS and in_sync < _SAFE_REPLICAS - 1:
        says = "one replica is enough to acknowledge: accepted submissions may be lost with its disk"
        yield "min.insync.replicas", says


def _broken_settings(settings: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """By name, what is wrong with the settings of a topic."""
    if settings.get("unclean.leader.election.enable", "false") != "false":
        says = "a replica that is behind may become leader: acknowledged messages are then deleted from the others, too"
        yield "unclean.leader.election.enable", says
    policy = settings.get("cleanup.policy", "delete")
    if policy != "delete":
        says = f"its cleanup.policy is {policy}: of several messages with one key all but the last are deleted"
        yield "cleanup.policy", says
    if settings and settings.get("message.timestamp.type") != "LogAppendTime":
        says = "messages have their senders' times: lag in seconds, and reading since a moment, go by the brokers'"
        yield "message.timestamp.type", says
    taken = int(settings.get("max.message.bytes", MAX_MESSAGE_BYTES))
    if taken < MAX_MESSAGE_BYTES:
        says = (
            f"takes messages of up to {taken:,} bytes: requests that need larger ones are refused, larger results stay"
        )
        yield "max.message.bytes", f"{says} unpublished"
    kept = int(settings.get("retention.ms", "-1"))
    if 0 <= kept < _SHORTEST_RETENTION / timedelta(milliseconds=1):
        says = f"messages are kept for {kept / 3_600_000:g} hours: longer outages of all workers lose messages"
        yield "retention.ms", says
    codec = settings.get("compression.type", "producer")
    if codec not in {"producer", "uncompressed"}:
        says = f"brokers compress again with {codec}: processes that lack this codec cannot read the topic"
        yield "compression.type", says


def _broken_database(facts: Facts) -> Iterator[tuple[str, str]]:
    """By name, what is wrong with the settings of the database."""
    if facts.settings.get("fsync") == "off":
        yield "fsync", "fsync is off: a crash of the server loses commits, and may corrupt tables"
    if facts.settings.get("full_page_writes") == "off":
        yield "full_page_writes", "full_page_writes is off: a crash may leave half-written pages"
    if facts.settings and not facts.standbys:
        says = "no synchronous standby: a failover loses the last commits, which workers notice and wait for"
        yield "synchronous standby", f"{says} `forwarder recover`"


_UNCLEAN: Final = (
    "A leader that lacks acknowledged messages loses them for all. Where the log then ends before a group's offset, that is "
    "noticed; where it has grown beyond it again, it is not."
)


def _assumptions(text: str) -> Iterator[Assumption]:
    lines = [line.strip() for line in text.strip().splitlines()]
    for head, why, remedy in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        name, severity, checked = head.split(" | ")
        yield Assumption(name, cast("Severity", severity), checked, why, remedy)


# Each: its name, severity and where it is read; why it must hold; the remedy.
ASSUMPTIONS: Final[Sequence[Assumption]] = [
    *_assumptions(f"""
    replicas in sync | failed | topic description
        With too few replicas in sync nothing is accepted, and one more failure may lose what was.
        bring the missing brokers back
    partitions | warning | topic description
        Each partition has one worker at a time. Rows of partitions that are gone are moved to others.
        set FORWARDER_PARTITIONS to its number, or add partitions: forwarder topics grow
    replication factor | warning | topic description
        A 2xx promises that a submission outlives a broker.
        in production make the topics on 3 brokers or more
    min.insync.replicas | warning | topic settings
        `acks=all` waits for the replicas in sync, however few those are.
        {_ALTER} min.insync.replicas=2
    unclean.leader.election.enable | failed | topic settings
        {_UNCLEAN}
        {_ALTER} unclean.leader.election.enable=false
    cleanup.policy | failed | topic settings
        Messages of one property share a key: compaction deletes all but the last.
        {_ALTER} cleanup.policy=delete
    message.timestamp.type | warning | topic settings
        `forwarder recover` reads the topics from a moment on, and orders messages by their times.
        {_ALTER} message.timestamp.type=LogAppendTime
    max.message.bytes | failed | topic settings
        Messages have up to {MAX_MESSAGE_BYTES:,} bytes.
        {_ALTER} max.message.bytes=1048588
    retention.ms | warning | topic settings
        Messages deleted before they were received are lost; after a restore of the database, so are those deleted since then.
        {_ALTER} retention.ms=604800000
    compression.type | warning | topic settings
        A partition with a batch that cannot be decompressed waits.
        {_ALTER} compression.type=producer
    fsync | failed | pg_settings
        A commit has to outlive a crash of the server: what it forgets is pushed again.
        set fsync = on in postgresql.conf, and restart PostgreSQL
    full_page_writes | failed | pg_settings
        A page that was half written in a crash cannot be repaired without.
        set full_page_writes = on in postgresql.conf, unless the file system writes pages as a whole
    synchronous standby | info | pg_stat_replication
        An asynchronous standby lacks the last commits when it is promoted.
        name one in synchronous_standby_names, or accept that a failover is followed by `forwarder recover`
""")
]


def broken_assumptions(facts: Facts) -> Iterator[Broken]:
    """The assumptions about this topic, or the database, that do not hold."""
    if facts.topic:
        found = [] if facts.state is None else [*_broken_state(facts, facts.state)]
        found += _broken_settings(facts.settings)
    else:
        found = [*_broken_database(facts)]
    says = dict(found)
    for each in ASSUMPTIONS:
        if each.name in says:
            yield Broken(each.name, each.severity, says[each.name], each.remedy.format(topic=facts.topic))
