"""Conditions that the forwarder's guarantees need from Kafka and PostgreSQL, and that it cannot set itself: each with how it is
checked, why, and the remedy. `forwarder doctor` checks them, workers log violations at start, and
docs/operations/assumptions.md is generated from this list.

A session's own settings (isolation level, `synchronous_commit`, time zone) are set on each connection instead."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, cast

from forwarder.topics.port import MAX_MESSAGE_BYTES, TopicState

Severity = Literal["info", "warning", "failed"]


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The facts about a topic, or about the database if `topic` is empty. `settings` under the server's own names; empty for the
    embedded log and store. `standbys`: how many take part in each commit."""

    settings: Mapping[str, str]
    topic: str = ""
    state: TopicState | None = None
    partitions: int = 0
    standbys: int = 0


@dataclass(frozen=True, slots=True)
class Assumption:
    """`checked`: where its value is read. `says`: what is wrong; `broken_assumptions` fills in its braces, and `remedy`'s."""

    name: str
    severity: Severity
    checked: str
    says: str
    why: str
    remedy: str


def _assumptions(text: str) -> Iterator[Assumption]:
    lines = [line.strip() for line in text.strip().splitlines()]
    for head, *texts in zip(*(lines[line::4] for line in range(4)), strict=True):
        name, severity, checked = head.split(" | ")
        yield Assumption(name, cast("Severity", severity), checked, *texts)


_ALTER: Final = "kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config"
_UNCLEAN: Final = (
    "A leader that lacks acknowledged messages loses them for all. That is noticed, and what is written there afterwards is "
    "received; what no worker had received before is gone."
)
# Each: its name, severity and where it is read; what is wrong where it does not hold; why it must hold; the remedy.
ASSUMPTIONS: Final = tuple(
    _assumptions(f"""
    replicas in sync | failed | topic description
        {{state.in_sync}} of {{state.replicas}} replicas are in sync
        With too few replicas in sync nothing is accepted, and one more failure may lose what was.
        bring the missing brokers back
    partitions | warning | topic description
        {{state.partitions}} partitions, and the setting says {{partitions}}: no more workers can share it
        Each partition has one worker at a time. Rows of partitions that are gone are moved to others.
        set FORWARDER_PARTITIONS to its number, or add partitions: forwarder topics grow
    replication factor | warning | topic description
        {{state.replicas}} replicas: accepted submissions are lost with a broker's disk
        A 2xx promises that a submission outlives a broker.
        in production make the topics on 3 brokers or more
    min.insync.replicas | warning | topic settings
        one replica is enough to acknowledge: accepted submissions may be lost with its disk
        `acks=all` waits for the replicas in sync, however few those are.
        {_ALTER} min.insync.replicas=2
    unclean.leader.election.enable | failed | topic settings
        a replica that is behind may become leader: acknowledged messages are then deleted from the others, too
        {_UNCLEAN}
        {_ALTER} unclean.leader.election.enable=false
    cleanup.policy | failed | topic settings
        its cleanup.policy is {{policy}}: of several messages with one key all but the last are deleted
        Messages of one property share a key: compaction deletes all but the last.
        {_ALTER} cleanup.policy=delete
    message.timestamp.type | warning | topic settings
        messages have their senders' times: lag in seconds, and reading since a moment, go by the brokers'
        `forwarder recover` reads the topics from a moment on, and orders messages by their times.
        {_ALTER} message.timestamp.type=LogAppendTime
    max.message.bytes | failed | topic settings
        takes messages of up to {{bytes:,}} bytes: requests that need larger ones are refused, larger results stay unpublished
        Messages have up to {MAX_MESSAGE_BYTES:,} bytes.
        {_ALTER} max.message.bytes=1048588
    retention.ms | warning | topic settings
        messages are kept for {{hours:g}} hours: longer outages of all workers lose messages
        Messages deleted before they were received are lost; after a restore of the database, so are those deleted since then.
        {_ALTER} retention.ms=604800000
    compression.type | warning | topic settings
        brokers compress again with {{codec}}: processes that lack this codec cannot read the topic
        A partition with a batch that cannot be decompressed waits.
        {_ALTER} compression.type=producer
    fsync | failed | pg_settings
        fsync is off: a crash of the server loses commits, and may corrupt tables
        A commit has to outlive a crash of the server: what it forgets is pushed again.
        set fsync = on in postgresql.conf, and restart PostgreSQL
    full_page_writes | failed | pg_settings
        full_page_writes is off: a crash may leave half-written pages
        A page that was half written in a crash cannot be repaired without.
        set full_page_writes = on in postgresql.conf, unless the file system writes pages as a whole
    synchronous standby | info | pg_stat_replication
        no synchronous standby: a failover loses the last commits, which workers notice and wait for `forwarder recover`
        An asynchronous standby lacks the last commits when it is promoted.
        name one in synchronous_standby_names, or accept that a failover is followed by `forwarder recover`
""")
)


def broken_assumptions(facts: ServerFacts) -> Iterator[Assumption]:
    get, state, known = facts.settings.get, facts.state, bool(facts.settings)
    found = {"policy": get("cleanup.policy", "delete"), "codec": get("compression.type", "producer")}
    most, kept_ms = int(get("max.message.bytes", MAX_MESSAGE_BYTES)), int(get("retention.ms", "-1"))
    broken = {
        "unclean.leader.election.enable": get("unclean.leader.election.enable", "false") != "false",
        "cleanup.policy": found["policy"] != "delete",
        "message.timestamp.type": known and get("message.timestamp.type") != "LogAppendTime",
        "max.message.bytes": most < MAX_MESSAGE_BYTES,
        "retention.ms": 0 <= kept_ms < 24 * 3_600_000,
        "compression.type": found["codec"] not in {"producer", "uncompressed"},
    }
    if state is not None:
        replicated = state.replicas >= 3  # noqa: PLR2004 - one may be down, and another may then fail
        broken |= {
            "replicas in sync": state.in_sync < state.replicas,
            "partitions": state.partitions < facts.partitions,
            "replication factor": known and not replicated,
            "min.insync.replicas": replicated and get("min.insync.replicas") in {"0", "1"},
        }
    if not facts.topic:
        broken = {name: get(name) == "off" for name in ("fsync", "full_page_writes")}
        broken["synchronous standby"] = known and not facts.standbys
    for each in ASSUMPTIONS:
        if broken.get(each.name):
            says = each.says.format(
                **found, state=state, partitions=facts.partitions, bytes=most, hours=kept_ms / 3_600_000
            )
            yield replace(each, says=says, remedy=each.remedy.format(topic=facts.topic))
