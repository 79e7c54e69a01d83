"""Selects the log and the store: embedded, or Kafka and PostgreSQL with their connection settings."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

from forwarder.process.addresses import is_local
from forwarder.settings.environment import BadSettings, Environment, secret
from forwarder.settings.kafka import kafka_security, refuse_superfluous
from forwarder.store.transport import BadTransport, Transport, transport_of
from forwarder.topics.kafka.security import KafkaSecurity


@dataclass(frozen=True, slots=True)
class Embedded:
    """Log and store are SQLite files in `data_dir`."""

    data_dir: Path


@dataclass(frozen=True, slots=True)
class Distributed:
    """Log and store are Kafka and PostgreSQL."""

    bootstrap_servers: str
    database_url: str = field(repr=False)
    kafka_security: KafkaSecurity | None = None
    """None: plaintext."""

    @property
    def hosts(self) -> Sequence[str]:
        """The hosts of the brokers and of the database."""
        return (*_brokers(self.bootstrap_servers), *_database_transport(self.database_url).hosts)


def backend_of(environment: Environment) -> Embedded | Distributed:
    """The configured log and store. Raises `BadSettings`."""
    servers, url = environment.kafka_bootstrap_servers, environment.database_url
    if servers and url:
        if not url.startswith(("postgresql://", "postgres://", "postgresql+asyncpg://")):
            raise BadSettings(
                "FORWARDER_DATABASE_URL must be a PostgreSQL URL: postgresql://user:password@host:5432/name"
            )
        security, transport = kafka_security(environment), _database_transport(url)
        url = _with_password(url, secret(environment.database_password))
        if not environment.allow_plaintext:
            _refuse_plaintext(servers, security, transport)
        return Distributed(servers, url, security)
    if servers or url:
        missing = "FORWARDER_DATABASE_URL" if servers else "FORWARDER_KAFKA_BOOTSTRAP_SERVERS"
        raise BadSettings(
            f"{missing} is missing. Set both FORWARDER_KAFKA_BOOTSTRAP_SERVERS and FORWARDER_DATABASE_URL to run on "
            "Kafka and PostgreSQL, or neither to run embedded."
        )
    if environment.database_password is not None:
        raise BadSettings("FORWARDER_DATABASE_PASSWORD is set, and FORWARDER_DATABASE_URL is missing.")
    refuse_superfluous(environment, set(), "FORWARDER_KAFKA_BOOTSTRAP_SERVERS is missing")
    return Embedded(environment.data_dir)


def _with_password(url: str, password: str | None) -> str:
    if password is None:
        return url
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    if not at or ":" in user:
        what = "has a password of its own: which of them is meant?" if at else "names no user whose it could be."
        raise BadSettings(f"FORWARDER_DATABASE_PASSWORD is set, and FORWARDER_DATABASE_URL {what}")
    return urlunsplit(parts._replace(netloc=f"{user}:{quote(password, safe='')}@{hosts}"))


def _database_transport(url: str) -> Transport:
    try:
        return transport_of(url, os.environ)
    except BadTransport as error:
        raise BadSettings(f"FORWARDER_DATABASE_URL: {error}") from None


def _brokers(servers: str) -> list[str]:
    """Their hosts."""
    return [urlsplit(f"//{each.strip()}").hostname or each.strip() for each in servers.split(",")]


def _refuse_plaintext(servers: str, security: KafkaSecurity | None, database: Transport) -> None:
    brokers = _brokers(servers)
    otherwise = "or FORWARDER_ALLOW_PLAINTEXT=true where the network between is private"
    away = [] if security is not None and security.encrypted else [host for host in brokers if not is_local(host)]
    if away:
        raise BadSettings(
            f"Kafka at {away[0]} would be reached in plaintext: set "
            f"FORWARDER_KAFKA_SECURITY_PROTOCOL to SASL_SSL or SSL, {otherwise}."
        )
    away = [] if database.encrypted else [host for host in database.hosts if not is_local(host)]
    if away:
        raise BadSettings(
            f"PostgreSQL at {away[0]} would be reached in plaintext: add ?sslmode=verify-full&sslrootcert=… to "
            f"FORWARDER_DATABASE_URL, {otherwise}."
        )
