"""Settings: environment variables `FORWARDER_…` → frozen values, one object per part.

Nothing else reads the environment. Half a configuration (Kafka without PostgreSQL, or the reverse) is an error, never a fallback.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from forwarder.http.connection_limits import ConnectionLimits
from forwarder.notifier.settings import GROUP as NOTIFIER_GROUP
from forwarder.notifier.settings import NotifierSettings
from forwarder.observability.logging import LogFormat
from forwarder.process.supervision import SHARED_ADDRESS
from forwarder.reservation.request import MAX_BODY_BYTES
from forwarder.tenancy.limits import RATE, read_limit
from forwarder.tenancy.port import RateLimit
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
    database_url: str


class Environment(BaseSettings):
    """The variables, each `FORWARDER_` and the field's name in capitals. Times are in seconds.

    The docstrings are the texts of docs/reference/settings.md: run `python -m tools.reference write` after a change.
    """

    model_config = SettingsConfigDict(env_prefix=_PREFIX, frozen=True, env_ignore_empty=True, extra="ignore")

    kafka_bootstrap_servers: str | None = None
    """Kafka brokers. Set together with `FORWARDER_DATABASE_URL`, or leave both out to run embedded."""
    database_url: str | None = None
    """PostgreSQL: `postgresql://user:password@host:5432/name`."""
    data_dir: Path = Path(".forwarder")
    """Where the embedded log and store are kept."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """Port to listen on."""
    secret_key: Annotated[SecretStr, Field(min_length=16)] | None = None
    """What cards and credentials are sealed to; at least 16 characters. Embedded, one is made and kept in the data directory."""
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
    max_connections: Annotated[int, Field(ge=1)] = 4096
    """Connections of HTTP clients that one process holds; never more than it may open files. Those without a request make room."""
    max_connections_per_address: Annotated[int, Field(ge=1)] = 1024
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
        secret = self.environment.secret_key
        return None if secret is None else secret.get_secret_value()

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
        environment = Environment()
    except ValidationError as error:
        raise BadSettings("\n".join(_in_words(error))) from None
    least = environment.push_timeout_seconds * _LEASE_TO_PUSH
    if environment.lease_seconds < least:
        raise BadSettings(
            f"FORWARDER_LEASE_SECONDS must be at least {_LEASE_TO_PUSH} times FORWARDER_PUSH_TIMEOUT_SECONDS, so {least:g}: it is "
            "renewed when a third of it is over, and a push that starts then must end, and be recorded, within the rest."
        )
    return Settings(environment, _backend(environment))


def _backend(environment: Environment) -> Embedded | Distributed:
    servers, url = environment.kafka_bootstrap_servers, environment.database_url
    if servers and url:
        if not url.startswith(("postgresql://", "postgres://", "postgresql+asyncpg://")):
            raise BadSettings(
                "FORWARDER_DATABASE_URL must be a PostgreSQL URL: postgresql://user:password@host:5432/name"
            )
        return Distributed(servers, url)
    if servers or url:
        missing = "FORWARDER_DATABASE_URL" if servers else "FORWARDER_KAFKA_BOOTSTRAP_SERVERS"
        raise BadSettings(
            f"{missing} is missing. Set both FORWARDER_KAFKA_BOOTSTRAP_SERVERS and FORWARDER_DATABASE_URL to run on "
            "Kafka and PostgreSQL, or neither to run embedded."
        )
    return Embedded(environment.data_dir)


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
