"""Settings: environment variables `FORWARDER_…` → frozen values, one object per part.

Nothing else reads the environment. Half a configuration (Kafka without PostgreSQL, or the reverse) is an error, never a fallback.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from forwarder.http.connection_limits import ConnectionLimits
from forwarder.notifier.settings import GROUP as NOTIFIER_GROUP
from forwarder.notifier.settings import NotifierSettings
from forwarder.observability.logging import LogFormat
from forwarder.process.supervision import SHARED_ADDRESS
from forwarder.reservation.request import MAX_BODY_BYTES
from forwarder.store.transport import BadTransport, Transport, transport_of
from forwarder.tenancy.limits import RATE, read_limit
from forwarder.tenancy.port import RateLimit
from forwarder.topics.kafka.security import KafkaSecurity, Mechanism, OAuthClient, Protocol
from forwarder.topics.port import Topics
from forwarder.webhooks.addresses import AddressRule
from forwarder.worker.parts import GROUP, WorkerSettings

_LEASE_TO_PUSH = 1.5
_PREFIX = "FORWARDER_"
_NO_SETTINGS = {
    SHARED_ADDRESS,
    # What `forwarder up` prints, for whoever calls the forwarder from the same shell.
    "FORWARDER_URL",
    "FORWARDER_TOKEN",
    "FORWARDER_WORKSPACE",
}
_OF_THE_TESTS = "FORWARDER_TEST_"

_IN_FILES: Final = ("secret_key", "database_url", "kafka_sasl_password", "kafka_sasl_oauth_client_secret")
"""What may be read from the file that `…_file` names."""

_TLS: Final = {"kafka_ca_file", "kafka_certificate_file", "kafka_key_file"}
_PASSWORD: Final = {"kafka_sasl_username", "kafka_sasl_password"}
_TOKEN: Final = {"kafka_sasl_oauth_token_url", "kafka_sasl_oauth_client_id", "kafka_sasl_oauth_client_secret"}
_KAFKA_SECURITY: Final = {*_TLS, *_PASSWORD, *_TOKEN, "kafka_sasl_mechanism", "kafka_sasl_oauth_scope"}


class BadSettings(ValueError):
    """The environment does not make a configuration. The message names each variable at fault and what would be right."""


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


class Environment(BaseSettings):
    """The variables, each `FORWARDER_` and the field's name in capitals. Times are in seconds.

    The docstrings are the texts of docs/reference/settings.md: run `python -m tools.reference write` after a change.
    """

    model_config = SettingsConfigDict(env_prefix=_PREFIX, frozen=True, env_ignore_empty=True, extra="ignore")

    kafka_bootstrap_servers: str | None = None
    """Kafka brokers. Set together with `FORWARDER_DATABASE_URL`, or leave both out to run embedded."""
    kafka_security_protocol: Protocol = "PLAINTEXT"
    """`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`: what the brokers' listener speaks."""
    kafka_sasl_mechanism: Mechanism | None = None
    """`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`."""
    kafka_sasl_username: str | None = None
    """For `PLAIN` and `SCRAM`."""
    kafka_sasl_password: SecretStr | None = None
    """For `PLAIN` and `SCRAM`."""
    kafka_sasl_password_file: Path | None = None
    """A file with the password, instead of `FORWARDER_KAFKA_SASL_PASSWORD`."""
    kafka_sasl_oauth_token_url: Annotated[str, Field(pattern=r"^https?://[^\s/?#@]+[^\s#]*$")] | None = None
    """For `OAUTHBEARER`: where the authorization server grants tokens by client credentials."""
    kafka_sasl_oauth_client_id: str | None = None
    """For `OAUTHBEARER`: the client."""
    kafka_sasl_oauth_client_secret: SecretStr | None = None
    """For `OAUTHBEARER`: its secret."""
    kafka_sasl_oauth_client_secret_file: Path | None = None
    """A file with that secret, instead of `FORWARDER_KAFKA_SASL_OAUTH_CLIENT_SECRET`."""
    kafka_sasl_oauth_scope: str | None = None
    """For `OAUTHBEARER`: the scope to ask for, where the server wants one."""
    kafka_ca_file: Path | None = None
    """The authorities (PEM) that brokers' certificates must be signed by. Unset: the system's."""
    kafka_certificate_file: Path | None = None
    """The certificate (PEM) that the brokers know us by, where they want one."""
    kafka_key_file: Path | None = None
    """Its key (PEM), without a password."""
    database_url: str | None = None
    """PostgreSQL: `postgresql://user:password@host:5432/name?sslmode=verify-full&sslrootcert=/path/ca.pem`. `sslcert`, `sslkey` and
    the rest are libpq's."""
    database_url_file: Path | None = None
    """A file with the URL, instead of `FORWARDER_DATABASE_URL`."""
    allow_plaintext: bool = False
    """Kafka and PostgreSQL may be reached without encryption anywhere. By default only on this machine."""
    data_dir: Path = Path(".forwarder")
    """Where the embedded log and store are kept."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """Port to listen on."""
    secret_key: Annotated[SecretStr, Field(min_length=16)] | None = None
    """What cards and credentials are sealed to; at least 16 characters. Embedded, one is made and kept in the data directory."""
    secret_key_file: Path | None = None
    """A file with the secret, instead of `FORWARDER_SECRET_KEY`."""
    simulator_url: Annotated[str, Field(pattern=r"^https?://[^\s/?#]+(/[^\s?#]*[^\s/?#])?$")] | None = None
    """The simulator that test keys reach, without a trailing `/`. Without it test keys are refused; `forwarder up` uses its own."""
    topic_prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]*$")] = ""
    """Put before the name of every topic and consumer group."""
    partitions: Annotated[int, Field(ge=1, le=1000)] = 16
    """Partitions of each topic that `forwarder topics create` makes. It limits how many workers can share the work."""
    wait_seconds: Annotated[float, Field(ge=0, le=300)] = 10.0
    """How long the general operation waits for an outcome."""
    max_wait_seconds: Annotated[int, Field(ge=0, le=300)] = 60
    """The longest `Prefer: wait=N`."""
    max_requests: Annotated[int, Field(ge=1)] = 5000
    """Submissions that one ingress process handles at once, waiting callers included. Above it: 503 with `Retry-After`."""
    max_request_bytes: Annotated[int, Field(ge=MAX_BODY_BYTES)] = 32 * 1024 * 1024
    """The same limit for the bytes of their bodies. It also limits a bulk, which is never larger than 8 MiB."""
    max_connections: Annotated[int, Field(ge=1)] = 8192
    """Connections of HTTP clients that one process holds; never more than it may open files. Those without a request make room."""
    max_connections_per_address: Annotated[int, Field(ge=1)] = 4096
    """The same of one client's address. Behind a proxy that is the proxy's: set both alike."""
    head_seconds: Annotated[float, Field(gt=0, le=300)] = 10.0
    """How long the target and headers of a request may take to come."""
    body_seconds: Annotated[float, Field(gt=0, le=300)] = 10.0
    """How long the body of a request may take to come."""
    rate_limit: Annotated[str, Field(pattern=f"^{RATE}$")] | None = None
    """What an API key without a limit of its own may submit and cancel: `100/60s` is 100 in 60 seconds. Unset: no limit."""
    push_timeout_seconds: Annotated[float, Field(gt=0, le=300)] = 30.0
    """How long a PMS may take to answer."""
    max_held: Annotated[int, Field(ge=1)] = 8000
    """Reservations that one worker holds in memory. The rest wait in the store."""
    lease_seconds: Annotated[float, Field(gt=0)] = 45.0
    """How long a silent worker keeps its rows. At least 1.5 times the push time-out."""
    session_seconds: Annotated[float, Field(ge=1, le=300)] = 10.0
    """How long a silent process keeps its partitions. The brokers must allow it: `group.min.session.timeout.ms`, 6 s."""
    webhook_timeout_seconds: Annotated[float, Field(gt=0, le=60)] = 15.0
    """How long a customer's endpoint may take to answer."""
    webhook_private_addresses: bool = False
    """Webhooks may use private addresses and plain http. By default https to public addresses only; embedded, also loopback."""
    grace_seconds: Annotated[float, Field(ge=0)] = 20.0
    """How long a stopping process lets work in progress finish."""
    log_level: Annotated[str, Field(pattern="^(debug|info|warning|error)$")] = "info"
    """`debug`, `info`, `warning` or `error`."""
    log_format: LogFormat = "auto"
    """`json`, `pretty`, or `auto`: pretty on a terminal, JSON otherwise."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment says, checked."""

    environment: Environment
    backend: Embedded | Distributed

    @property
    def topics(self) -> Topics:
        return Topics(self.environment.topic_prefix)

    @property
    def secret_key(self) -> str | None:
        return _secret(self.environment.secret_key)

    @property
    def rate_limit(self) -> RateLimit | None:
        """Of each API key that has none of its own."""
        written = self.environment.rate_limit
        return None if written is None else read_limit(written)

    @property
    def connections(self) -> ConnectionLimits:
        environment = self.environment
        return ConnectionLimits(
            max_connections=environment.max_connections,
            max_per_address=environment.max_connections_per_address,
            head_seconds=environment.head_seconds,
            body_seconds=environment.body_seconds,
        )

    @property
    def worker(self) -> WorkerSettings:
        environment = self.environment
        return WorkerSettings(
            # Deployments that share a Kafka share no group: one's rebalances are none of the other's.
            group=f"{environment.topic_prefix}{GROUP}",
            max_held=environment.max_held,
            lease_seconds=environment.lease_seconds,
            grace_seconds=environment.grace_seconds,
            quiet_seconds=environment.push_timeout_seconds,
        )

    @property
    def notifier(self) -> NotifierSettings:
        environment = self.environment
        return NotifierSettings(
            group=f"{environment.topic_prefix}{NOTIFIER_GROUP}",
            post_seconds=environment.webhook_timeout_seconds,
            grace_seconds=environment.grace_seconds,
        )

    @property
    def webhook_addresses(self) -> AddressRule:
        """Embedded, this machine's own addresses may be posted to as well, so that webhooks can be tried."""
        private = self.environment.webhook_private_addresses
        return AddressRule(private=private, loopback=isinstance(self.backend, Embedded))


def read_settings() -> Settings:
    """The settings that the environment makes. Raises `BadSettings`."""
    _refuse_unknown(os.environ)
    try:
        return settings_of(Environment())
    except ValidationError as error:
        raise BadSettings("\n".join(_in_words(error))) from None


def settings_of(environment: Environment) -> Settings:
    """What these variables come to. Raises `BadSettings`; `ValidationError` for a value in a file."""
    environment = environment.model_validate(environment.model_dump() | _from_files(environment))
    least = environment.push_timeout_seconds * _LEASE_TO_PUSH
    if environment.lease_seconds < least:
        raise BadSettings(
            f"FORWARDER_LEASE_SECONDS must be at least {_LEASE_TO_PUSH} times FORWARDER_PUSH_TIMEOUT_SECONDS, so {least:g}: it is "
            "renewed when a third of it is over, and a push that starts then must end, and be recorded, within the rest."
        )
    return Settings(environment, _backend(environment))


def _backend(environment: Environment) -> Embedded | Distributed:
    """What log and store are. Raises `BadSettings`."""
    servers, url = environment.kafka_bootstrap_servers, environment.database_url
    if servers and url:
        if not url.startswith(("postgresql://", "postgres://", "postgresql+asyncpg://")):
            raise BadSettings(
                "FORWARDER_DATABASE_URL must be a PostgreSQL URL: postgresql://user:password@host:5432/name"
            )
        security, transport = _kafka_security(environment), _database_transport(url)
        if not environment.allow_plaintext:
            _refuse_plaintext(servers, security, transport)
        return Distributed(servers, url, security)
    if servers or url:
        missing = "FORWARDER_DATABASE_URL" if servers else "FORWARDER_KAFKA_BOOTSTRAP_SERVERS"
        raise BadSettings(
            f"{missing} is missing. Set both FORWARDER_KAFKA_BOOTSTRAP_SERVERS and FORWARDER_DATABASE_URL to run on "
            "Kafka and PostgreSQL, or neither to run embedded."
        )
    _refuse_superfluous(environment, set(), "FORWARDER_KAFKA_BOOTSTRAP_SERVERS is missing")
    return Embedded(environment.data_dir)


def _from_files(environment: Environment) -> dict[str, str]:
    """The values that are in files, without the line's end that editors leave."""
    values = {}
    for name in _IN_FILES:
        file: Path | None = getattr(environment, f"{name}_file")
        if file is None:
            continue
        if getattr(environment, name) is not None:
            raise BadSettings(f"{_variable(name)} and {_variable(name)}_FILE are both set: which of them is meant?")
        try:
            values[name] = file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise BadSettings(f"{_variable(name)}_FILE: {file} cannot be read: {why}") from None
        if not values[name]:
            raise BadSettings(f"{_variable(name)}_FILE: {file} is empty")
    return values


def _kafka_security(environment: Environment) -> KafkaSecurity | None:
    protocol, mechanism = environment.kafka_security_protocol, environment.kafka_sasl_mechanism
    secured, authenticated = protocol.endswith("SSL"), protocol.startswith("SASL")
    needed = {"kafka_sasl_mechanism"} if authenticated else set()
    if authenticated and mechanism is not None:
        needed |= _TOKEN if mechanism == "OAUTHBEARER" else _PASSWORD
    for one, other in (("kafka_certificate_file", "kafka_key_file"), ("kafka_key_file", "kafka_certificate_file")):
        needed |= {other} if secured and getattr(environment, one) is not None else set()
    said = f"FORWARDER_KAFKA_SECURITY_PROTOCOL is {protocol}"
    said += f" and FORWARDER_KAFKA_SASL_MECHANISM {mechanism}" if mechanism else ""
    missing = sorted(_variable(name) for name in needed if getattr(environment, name) is None)
    if missing:
        raise BadSettings(f"{' and '.join(missing)} must be set, because {said}.")
    optional = (_TLS if secured else set()) | ({"kafka_sasl_oauth_scope"} if needed >= _TOKEN else set())
    _refuse_superfluous(environment, needed | optional, said)
    if protocol == "PLAINTEXT":
        return None
    security = KafkaSecurity(
        protocol=protocol,
        mechanism=mechanism,
        username=environment.kafka_sasl_username,
        password=_secret(environment.kafka_sasl_password),
        oauth=_oauth_client(environment),
        ca_file=environment.kafka_ca_file,
        certificate_file=environment.kafka_certificate_file,
        key_file=environment.kafka_key_file,
    )
    try:
        security.tls()
    except OSError as error:
        files = ", ".join(f"{_variable(name)}={path}" for name in sorted(_TLS) if (path := getattr(environment, name)))
        raise BadSettings(f"{files} cannot be used: {error.strerror}") from None
    return security


def _oauth_client(environment: Environment) -> OAuthClient | None:
    url, client = environment.kafka_sasl_oauth_token_url, environment.kafka_sasl_oauth_client_id
    secret = _secret(environment.kafka_sasl_oauth_client_secret)
    if url is None or client is None or secret is None:
        return None
    if url.startswith("http://") and not environment.allow_plaintext and not _is_local(urlsplit(url).hostname or url):
        raise BadSettings("FORWARDER_KAFKA_SASL_OAUTH_TOKEN_URL must be https: the client's secret is sent there.")
    return OAuthClient(url, client, secret, environment.kafka_sasl_oauth_scope)


def _refuse_superfluous(environment: Environment, usable: set[str], said: str) -> None:
    """What has no effect was meant to have one."""
    given = {name for name in _KAFKA_SECURITY if getattr(environment, name) is not None}
    superfluous = sorted(_variable(name) for name in given - usable)
    if superfluous:
        raise BadSettings(f"{' and '.join(superfluous)} would have no effect, because {said}.")


def _database_transport(url: str) -> Transport:
    try:
        return transport_of(url, os.environ)
    except BadTransport as error:
        raise BadSettings(f"FORWARDER_DATABASE_URL: {error}") from None


def _refuse_plaintext(servers: str, security: KafkaSecurity | None, database: Transport) -> None:
    brokers = [urlsplit(f"//{each.strip()}").hostname or each.strip() for each in servers.split(",")]
    otherwise = "or FORWARDER_ALLOW_PLAINTEXT=true where the network between is private"
    away = [] if security is not None and security.encrypted else [host for host in brokers if not _is_local(host)]
    if away:
        raise BadSettings(
            f"Kafka at {away[0]} would be reached in plaintext: set "
            f"FORWARDER_KAFKA_SECURITY_PROTOCOL to SASL_SSL or SSL, {otherwise}."
        )
    away = [] if database.encrypted else [host for host in database.hosts if not _is_local(host)]
    if away:
        raise BadSettings(
            f"PostgreSQL at {away[0]} would be reached in plaintext: add ?sslmode=verify-full&sslrootcert=… to "
            f"FORWARDER_DATABASE_URL, {otherwise}."
        )


def _is_local(host: str) -> bool:
    """A socket of this machine, or a loopback address. No name is looked up: what it means may change."""
    if host == "localhost" or host.startswith("/"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _secret(value: SecretStr | None) -> str | None:
    return None if value is None else value.get_secret_value()


def _variable(name: str) -> str:
    return f"{_PREFIX}{name.upper()}"


def _refuse_unknown(names: Iterable[str]) -> None:
    """A misspelt variable would be ignored, and what it was to protect would be left open."""
    known = {f"{_PREFIX}{name.upper()}" for name in Environment.model_fields} | _NO_SETTINGS
    ours = {name for name in names if name.upper().startswith(_PREFIX)}
    unknown = sorted(name for name in ours if name.upper() not in known and not name.upper().startswith(_OF_THE_TESTS))
    if unknown:
        raise BadSettings("\n".join(_unknown(name, known) for name in unknown))


def _unknown(name: str, known: Iterable[str]) -> str:
    short = [each.removeprefix(_PREFIX) for each in known]
    nearest = get_close_matches(name.upper().removeprefix(_PREFIX), short, n=1)
    hint = f"Did you mean {_PREFIX}{nearest[0]}?" if nearest else "docs/reference/settings.md lists those there are."
    return f"{name} is no setting. {hint}"


def _in_words(error: ValidationError) -> list[str]:
    return [
        f"FORWARDER_{'_'.join(str(step) for step in detail['loc'][:1]).upper()}: {detail['msg']}"
        for detail in error.errors(include_input=False, include_url=False)
    ]
