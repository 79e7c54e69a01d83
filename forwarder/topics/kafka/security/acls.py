"""The least privileges of each stage's Kafka user: ACLs for brokers that have an authorizer. No I/O."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from forwarder.topics.port import Topics

STAGES: Final = ("ingress", "worker", "query", "notifier", "operator")
"""`operator` is for commands and the console."""


@dataclass(frozen=True, slots=True)
class Acl:
    """`operation` is allowed on these topics and groups, each by its full name. `Read` and `Write` imply `Describe`."""

    operation: str
    topics: Sequence[str] = ()
    groups: Sequence[str] = ()


def acls(topics: Topics, worker_group: str, notifier_group: str) -> Mapping[str, Sequence[Acl]]:
    """By stage."""
    return {
        # Publishes submissions, and reads results for waiting callers. It cannot read submissions back.
        "ingress": (Acl("Write", [topics.requests]), Acl("Read", [topics.results])),
        # Checks all three topics before it starts, to detect a restored database. Also reports the notifiers' lag.
        "worker": (
            Acl("Read", topics.all(), [worker_group]),
            Acl("Write", [topics.results, topics.dead_letters]),
            Acl("Describe", groups=[notifier_group]),
        ),
        # For waiting callers.
        "query": (Acl("Read", [topics.results]),),
        "notifier": (Acl("Read", [topics.results], [notifier_group]),),
        # Cancels and replays; after a restore publishes results again.
        "operator": (
            Acl("Read", topics.all()),
            Acl("Write", [topics.requests, topics.results]),
            Acl("Create", topics.all()),
            Acl("DescribeConfigs", topics.all()),
            Acl("Describe", groups=[worker_group, notifier_group]),
        ),
    }


def arguments(acl: Acl, principal: str) -> Iterator[str]:
    """The arguments for Kafka's tool `kafka-acls`."""
    yield from ("--add", "--allow-principal", principal, "--operation", acl.operation)
    for name in acl.topics:
        yield from ("--topic", name)
    for name in acl.groups:
        yield from ("--group", name)
