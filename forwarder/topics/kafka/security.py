"""TLS and authentication settings for the brokers, and the least privileges of each stage's Kafka user. Independent of the driver,
so that settings can be checked without it."""

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Literal

from forwarder.topics.port import Topics

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """A client of an authorization server that grants tokens by client credentials (RFC 6749, section 4.4)."""

    token_url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class KafkaSecurity:
    """A consistent combination: a mechanism only with a SASL protocol, files only with a TLS one. `username` and `password` are for
    PLAIN and SCRAM, `oauth` for OAUTHBEARER: the client that gets tokens, or a file with one. Without `ca_file` the system's
    authorities are trusted."""

    protocol: Protocol = "PLAINTEXT"
    mechanism: Mechanism | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    oauth: OAuthClient | Path | None = None
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None

    @property
    def encrypted(self) -> bool:
        return self.protocol in {"SSL", "SASL_SSL"}

    def tls(self) -> ssl.SSLContext | None:
        """The context that verifies the brokers' certificates and host names; None without encryption. Raises `OSError`, whose
        `filename` is None if a file is readable but has the wrong content."""
        if not self.encrypted:
            return None
        context = ssl.create_default_context(cafile=self.ca_file)
        if self.certificate_file is not None:
            # Without a password OpenSSL would ask for one at the terminal. With an empty one it refuses a key that has one.
            context.load_cert_chain(self.certificate_file, self.key_file, password="")
        return context


@dataclass(frozen=True, slots=True)
class Acl:
    """`operation` is allowed on these topics and groups, each by its full name. `Read` and `Write` imply `Describe`."""

    operation: str
    topics: Sequence[str] = ()
    groups: Sequence[str] = ()


def acls(topics: Topics, worker_group: str, notifier_group: str) -> Mapping[str, Sequence[Acl]]:
    """By stage; `operator` is for commands and the console."""
    return {
        # Publishes submissions, and reads results for waiting callers. It cannot read submissions back.
        "ingress": (Acl("Write", [topics.requests]), Acl("Read", [topics.results])),
        # Checks all three topics before it starts, to detect a restored database. Also reports the notifiers' lag.
        "worker": (
            Acl("Read", topics.all(), [worker_group]),
            Acl("Write", [topics.results, topics.dead_letters]),
            Acl("Describe", groups=[notifier_group]),
            # Housekeeping compares lag with retention.
            Acl("DescribeConfigs", topics.all()),
        ),
        # For waiting callers.
        "query": (Acl("Read", [topics.results]),),
        "notifier": (Acl("Read", [topics.results], [notifier_group]),),
        # Cancels and replays; after a restore publishes results again.
        "operator": (
            Acl("Read", topics.all()),
            Acl("Write", [topics.requests, topics.results]),
            Acl("Create", topics.all()),
            Acl("Alter", topics.all()),
            Acl("DescribeConfigs", topics.all()),
            Acl("Describe", groups=[worker_group, notifier_group]),
        ),
    }


def arguments(acl: Acl, principal: str) -> Sequence[str]:
    """The arguments for Kafka's tool `kafka-acls`."""
    named = [("--topic", name) for name in acl.topics] + [("--group", name) for name in acl.groups]
    return ["--add", "--allow-principal", principal, "--operation", acl.operation, *chain(*named)]
