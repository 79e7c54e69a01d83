"""Conditions that the forwarder's guarantees need from Kafka and PostgreSQL, and that it cannot set itself: each with how it is
checked, why, and the remedy. `forwarder doctor` checks them, workers log violations at start, and
docs/operations/assumptions.md is generated from this list.

A session's own settings (isolation level, `synchronous_commit`, time zone) are set on each connection instead.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

from forwarder.topics.port import MAX_MESSAGE_BYTES, TopicState

Severity = Literal["info", "warning", "failed"]

_SAFE_REPLICAS: Final = 3
_BROKERS_DEFAULT_BYTES: Final = 1_048_588
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
    """`checked`: where the value is read. `broken`: describes a violation; None if it holds.
    `remedy` may name the topic."""

    name: str
    severity: Severity
    checked: str
    why: str
    remedy: str
    broken: Callable[[Facts], str | None]

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


def _in_sync(facts: Facts) -> str | None:
    state = facts.state
    if state is None or state.in_sync >= state.replicas:
        return None
    return f"{state.in_sync} of {state.replicas} replicas are in sync"


def _partitions(facts: Facts) -> str | None:
    if facts.state is None or facts.state.partitions >= facts.partitions:
        return None
    return f"{facts.state.partitions} partitions, and the setting says {facts.partitions}: no more workers can share it"


def _replicas(facts: Facts) -> str | None:
    if facts.state is None or not facts.settings or facts.state.replicas >= _SAFE_REPLICAS:
        return None
    return f"{facts.state.replicas} replicas: accepted submissions are lost with a broker's disk"


def _min_in_sync(facts: Facts) -> str | None:
    if facts.state is None or facts.state.replicas < _SAFE_REPLICAS:
        return None
    least = int(facts.settings.get("min.insync.replicas", str(_SAFE_REPLICAS)))
    if least >= _SAFE_REPLICAS - 1:
        return None
    return "one replica is enough to acknowledge: accepted submissions may be lost with its disk"


def _unclean(facts: Facts) -> str | None:
    if facts.settings.get("unclean.leader.election.enable", "false") == "false":
        return None
    return "a replica that is behind may become leader: acknowledged messages are then deleted from the others, too"


def _cleanup(facts: Facts) -> str | None:
    policy = facts.settings.get("cleanup.policy", "delete")
    if policy == "delete":
        return None
    return f"its cleanup.policy is {policy}: of several messages with one key all but the last are deleted"


def _timestamps(facts: Facts) -> str | None:
    if not facts.settings or facts.settings.get("message.timestamp.type") == "LogAppendTime":
        return None
    return "messages have their senders' times: lag in seconds, and reading since a moment, go by the brokers'"


def _message_bytes(facts: Facts) -> str | None:
    taken = int(facts.settings.get("max.message.bytes", MAX_MESSAGE_BYTES))
    if taken >= MAX_MESSAGE_BYTES:
        return None
    return f"takes messages of up to {taken:,} bytes: requests that need larger ones are refused, larger results stay unpublished"


def _retention(facts: Facts) -> str | None:
    kept = int(facts.settings.get("retention.ms", "-1"))
    if not 0 <= kept < _SHORTEST_RETENTION / timedelta(milliseconds=1):
        return None
    return f"messages are kept for {kept / 3_600_000:g} hours: longer outages of all workers lose messages"


def _compression(facts: Facts) -> str | None:
    kind = facts.settings.get("compression.type", "producer")
    if kind in {"producer", "uncompressed"}:
        return None
    return f"brokers compress again with {kind}: processes that lack this codec cannot read the topic"


def _off(name: str, consequence: str) -> Callable[[Facts], str | None]:
    return lambda facts: f"{name} is off: {consequence}" if facts.settings.get(name) == "off" else None


def _standbys(facts: Facts) -> str | None:
    if not facts.settings or facts.standbys:
        return None
    return "no synchronous standby: a failover loses the last commits, which workers notice and wait for `forwarder recover`"


ASSUMPTIONS: Final[Sequence[Assumption]] = (
    Assumption(
        "replicas in sync",
        "failed",
        "topic description",
        "With too few replicas in sync nothing is accepted, and one more failure may lose what was.",
        "bring the missing brokers back",
        _in_sync,
    ),
    Assumption(
        "partitions",
        "warning",
        "topic description",
        "Each partition has one worker at a time. Rows of partitions that are gone are moved to others.",
        "set FORWARDER_PARTITIONS to its number, or add partitions: forwarder topics grow",
        _partitions,
    ),
    Assumption(
        "replication factor",
        "warning",
        "topic description",
        "A 2xx promises that a submission outlives a broker.",
        f"in production make the topics on {_SAFE_REPLICAS} brokers or more",
        _replicas,
    ),
    Assumption(
        "min.insync.replicas",
        "warning",
        "topic settings",
        "`acks=all` waits for the replicas in sync, however few those are.",
        f"{_ALTER} min.insync.replicas=2",
        _min_in_sync,
    ),
    Assumption(
        "unclean.leader.election.enable",
        "failed",
        "topic settings",
        "A leader that lacks acknowledged messages loses them for all. Where the log then ends before a group's offset, that is "
        "noticed; where it has grown beyond it again, it is not.",
        f"{_ALTER} unclean.leader.election.enable=false",
        _unclean,
    ),
    Assumption(
        "cleanup.policy",
        "failed",
        "topic settings",
        "Messages of one property share a key: compaction deletes all but the last.",
        f"{_ALTER} cleanup.policy=delete",
        _cleanup,
    ),
    Assumption(
        "message.timestamp.type",
        "warning",
        "topic settings",
        "`forwarder recover` reads the topics from a moment on, and orders messages by their times.",
        f"{_ALTER} message.timestamp.type=LogAppendTime",
        _timestamps,
    ),
    Assumption(
        "max.message.bytes",
        "failed",
        "topic settings",
        f"Messages have up to {MAX_MESSAGE_BYTES:,} bytes.",
        f"{_ALTER} max.message.bytes={_BROKERS_DEFAULT_BYTES}",
        _message_bytes,
    ),
    Assumption(
        "retention.ms",
        "warning",
        "topic settings",
        "Messages deleted before they were received are lost; after a restore of the database, so are those deleted since then.",
        f"{_ALTER} retention.ms=604800000",
        _retention,
    ),
    Assumption(
        "compression.type",
        "warning",
        "topic settings",
        "A partition with a batch that cannot be decompressed waits.",
        f"{_ALTER} compression.type=producer",
        _compression,
    ),
    Assumption(
        "fsync",
        "failed",
        "pg_settings",
        "A commit has to outlive a crash of the server: what it forgets is pushed again.",
        "set fsync = on in postgresql.conf, and restart PostgreSQL",
        _off("fsync", "a crash of the server loses commits, and may corrupt tables"),
    ),
    Assumption(
        "full_page_writes",
        "failed",
        "pg_settings",
        "A page that was half written in a crash cannot be repaired without.",
        "set full_page_writes = on in postgresql.conf, unless the file system writes pages as a whole",
        _off("full_page_writes", "a crash may leave half-written pages"),
    ),
    Assumption(
        "synchronous standby",
        "info",
        "pg_stat_replication",
        "An asynchronous standby lacks the last commits when it is promoted.",
        "name one in synchronous_standby_names, or accept that a failover is followed by `forwarder recover`",
        _standbys,
    ),
)


def broken_assumptions(facts: Facts) -> Iterator[Broken]:
    """The assumptions about this topic, or the database, that do not hold."""
    subject = "topic" if facts.topic else "database"
    for each in ASSUMPTIONS:
        if each.subject == subject and (says := each.broken(facts)) is not None:
            yield Broken(each.name, each.severity, says, each.remedy.format(topic=facts.topic))
