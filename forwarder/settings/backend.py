"""Selects the log and the store: embedded, or Kafka and PostgreSQL with their connection settings."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit, urlunsplit

from forwarder.process.addresses import is_local
from forwarder.settings.environment import BadSettings, Environment, secret, variable
from forwarder.store.transport import BadTransport, DatabaseTransport, transport_of
from forwarder.topics.kafka.security import KafkaSecurity, OAuthClient

_TLS: Final = {"kafka_ca_file", "kafka_certificate_file", "kafka_key_file"}
_PASSWORD: Final = {"kafka_sasl_username", "kafka_sasl_password"}
_TOKEN: Final = {"kafka_sasl_oauth_token_url", "kafka_sasl_oauth_client_id", "kafka_sasl_oauth_client_secret"}
_TOKEN_FILE: Final = "kafka_sasl_oauth_token_file"  # noqa: S105 - its name


@dataclass(frozen=True, slots=True)
class Embedded:
    """Log and store are SQLite files in `data_dir`."""

    data_dir: Path


@dataclass(frozen=True, slots=True)
class Distributed:
    """Log and store are Kafka and PostgreSQL."""

    bootstrap_servers: str
    database_url: str = field(repr=False)
    kafka_security: KafkaSecurity | None = None  # None: plaintext

    @property
    def hosts(self) -> Sequence[str]:
        return (*_brokers(self.bootstrap_servers), *_database_transport(self.database_url).hosts)


def certificates_of(environment: Environment, backend: Embedded | Distributed) -> Mapping[str, Path]:
    """The files of the certificates that this process shows, by the setting that names each."""
    files = {"FORWARDER_TLS_CERTIFICATE_FILE": environment.tls_certificate_file}
    if isinstance(backend, Distributed):
        files["FORWARDER_KAFKA_CERTIFICATE_FILE"] = environment.kafka_certificate_file
        files["sslcert in FORWARDER_DATABASE_URL"] = _database_transport(backend.database_url).certificate
    return {name: file for name, file in files.items() if file is not None}


def backend_of(environment: Environment) -> Embedded | Distributed:
    """The configured log and store. Raises `BadSettings`."""
    servers, url = environment.kafka_bootstrap_servers, environment.database_url
    if servers and url:
        if not url.startswith(("postgresql://", "postgres://", "postgresql+asyncpg://")):
            right = "postgresql://user:password@host:5432/name"
            raise BadSettings(f"FORWARDER_DATABASE_URL must be a PostgreSQL URL: {right}")
        security, transport = kafka_security(environment), _database_transport(url)
        if password := secret(environment.database_password):
            parts = urlsplit(url)
            user, at, hosts = parts.netloc.rpartition("@")
            if not at or ":" in user:
                what = "has a password of its own: which of them is meant?"
                what = what if at else "names no user whose it could be."
                raise BadSettings(f"FORWARDER_DATABASE_PASSWORD is set, and FORWARDER_DATABASE_URL {what}")
            url = urlunsplit(parts._replace(netloc=f"{user}:{quote(password, safe='')}@{hosts}"))
        if not environment.allow_plaintext:
            encrypted = security is not None and security.encrypted
            protocol = "set FORWARDER_KAFKA_SECURITY_PROTOCOL to SASL_SSL or SSL"
            _refuse_plaintext("Kafka", encrypted, _brokers(servers), protocol)
            mode = "add ?sslmode=verify-full&sslrootcert=… to FORWARDER_DATABASE_URL"
            _refuse_plaintext("PostgreSQL", transport.encrypted, transport.hosts, mode)
        return Distributed(servers, url, security)
    if servers or url:
        missing = "FORWARDER_DATABASE_URL" if servers else "FORWARDER_KAFKA_BOOTSTRAP_SERVERS"
        both = "Set both FORWARDER_KAFKA_BOOTSTRAP_SERVERS and FORWARDER_DATABASE_URL to run on Kafka and PostgreSQL"
        raise BadSettings(f"{missing} is missing. {both}, or neither to run embedded.")
    if environment.database_password is not None:
        raise BadSettings("FORWARDER_DATABASE_PASSWORD is set, and FORWARDER_DATABASE_URL is missing.")
    _refuse_superfluous(environment, set(), "FORWARDER_KAFKA_BOOTSTRAP_SERVERS is missing")
    return Embedded(environment.data_dir)


def _database_transport(url: str) -> DatabaseTransport:
    try:
        return transport_of(url, os.environ)
    except BadTransport as error:
        raise BadSettings(f"FORWARDER_DATABASE_URL: {error}") from None


def _brokers(servers: str) -> list[str]:
    with suppress(ValueError):  # a port that is no number, or an open bracket
        brokers = [urlsplit(f"//{each.strip()}") for each in servers.split(",")]
        if all(broker.hostname and broker.port != 0 for broker in brokers):
            return [str(broker.hostname) for broker in brokers]
    right = "host:port, several with commas between"
    raise BadSettings(f"FORWARDER_KAFKA_BOOTSTRAP_SERVERS must be {right}; it is {servers!r}.")


def _refuse_plaintext(what: str, encrypted: bool, hosts: Sequence[str], mend: str) -> None:  # noqa: FBT001
    otherwise = "or FORWARDER_ALLOW_PLAINTEXT=true where the network between is private"
    if not encrypted and (away := [host for host in hosts if not is_local(host)]):
        raise BadSettings(f"{what} at {away[0]} would be reached in plaintext: {mend}, {otherwise}.")


def kafka_security(environment: Environment) -> KafkaSecurity | None:
    """The security settings for the brokers; None for plaintext. Raises `BadSettings` for contradictory variables."""
    protocol, mechanism = environment.kafka_security_protocol, environment.kafka_sasl_mechanism
    token_file = environment.kafka_sasl_oauth_token_file
    secured, authenticated = protocol.endswith("SSL"), protocol.startswith("SASL")
    needed = {"kafka_sasl_mechanism"} if authenticated else set()
    if authenticated and mechanism is not None:
        needed |= _PASSWORD if mechanism != "OAUTHBEARER" else _TOKEN if token_file is None else {_TOKEN_FILE}
    if secured and (environment.kafka_certificate_file is not None or environment.kafka_key_file is not None):
        needed |= {"kafka_certificate_file", "kafka_key_file"}
    said = f"FORWARDER_KAFKA_SECURITY_PROTOCOL is {protocol}"
    said += f" and FORWARDER_KAFKA_SASL_MECHANISM {mechanism}" if mechanism else ""
    said += f" and {variable(_TOKEN_FILE)} is set" if token_file else ""
    missing = sorted(variable(name) for name in needed if getattr(environment, name) is None)
    if missing:
        raise BadSettings(f"{' and '.join(missing)} must be set, because {said}.")
    optional = (_TLS if secured else set()) | ({"kafka_sasl_oauth_scope"} if needed >= _TOKEN else set())
    _refuse_superfluous(environment, needed | optional, said)
    if protocol == "PLAINTEXT":
        return None
    oauth: Path | OAuthClient | None = token_file
    url, client = environment.kafka_sasl_oauth_token_url, environment.kafka_sasl_oauth_client_id
    client_secret = secret(environment.kafka_sasl_oauth_client_secret)
    if token_file is None and url is not None and client is not None and client_secret is not None:
        plaintext = url.startswith("http://") and not is_local(urlsplit(url).hostname or url)
        if plaintext and not environment.allow_plaintext:
            raise BadSettings("FORWARDER_KAFKA_SASL_OAUTH_TOKEN_URL must be https: the client's secret is sent there.")
        oauth = OAuthClient(url, client, client_secret, environment.kafka_sasl_oauth_scope)
    security = KafkaSecurity(
        protocol=protocol,
        mechanism=mechanism,
        username=environment.kafka_sasl_username,
        password=secret(environment.kafka_sasl_password),
        oauth=oauth,
        ca_file=environment.kafka_ca_file,
        certificate_file=environment.kafka_certificate_file,
        key_file=environment.kafka_key_file,
    )
    try:
        security.tls()
    except OSError as error:
        files = ", ".join(f"{variable(name)}={path}" for name in sorted(_TLS) if (path := getattr(environment, name)))
        raise BadSettings(f"{files} cannot be used: {error.strerror}") from None
    return security


def _refuse_superfluous(environment: Environment, usable: set[str], said: str) -> None:
    """Rejects variables that would be ignored: the operator who set them expected an effect."""
    every = {*_TLS, *_PASSWORD, *_TOKEN, _TOKEN_FILE, "kafka_sasl_mechanism", "kafka_sasl_oauth_scope"}
    superfluous = sorted(variable(name) for name in every - usable if getattr(environment, name) is not None)
    if superfluous:
        raise BadSettings(f"{' and '.join(superfluous)} would have no effect, because {said}.")
