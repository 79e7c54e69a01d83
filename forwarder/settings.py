"""Settings: environment variables `FORWARDER_…` → frozen values, one object per part. The README's table lists them all.

Nothing else reads the environment. Half a configuration (Kafka without PostgreSQL, or the reverse) is an error, never a fallback.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from forwarder.notifier.settings import GROUP as NOTIFIER_GROUP
from forwarder.notifier.settings import NotifierSettings
from forwarder.observability.logging import LogFormat
from forwarder.reservation.request import MAX_BODY_BYTES
from forwarder.tenancy.limits import RATE, read_limit
from forwarder.tenancy.port import RateLimit
from forwarder.topics.port import Topics
from forwarder.webhooks.addresses import AddressRule
from forwarder.worker.settings import GROUP, WorkerSettings

_LEASE_TO_PUSH = 1.5


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
    """The variables, each `FORWARDER_` and the field's name in capitals. Times are in seconds."""

    model_config = SettingsConfigDict(env_prefix="FORWARDER_", frozen=True, env_ignore_empty=True, extra="ignore")

    kafka_bootstrap_servers: str | None = None
    database_url: str | None = None
    data_dir: Path = Path(".forwarder")
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    secret_key: Annotated[SecretStr, Field(min_length=16)] | None = None
    simulator_url: Annotated[str, Field(pattern=r"^https?://[^\s/?#]+(/[^\s?#]*[^\s/?#])?$")] | None = None
    topic_prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]*$")] = ""
    partitions: Annotated[int, Field(ge=1, le=1000)] = 16
    wait_seconds: Annotated[float, Field(ge=0, le=300)] = 10.0
    max_wait_seconds: Annotated[int, Field(ge=0, le=300)] = 60
    calls_at_most: Annotated[int, Field(ge=1)] = 5000
    body_bytes_at_most: Annotated[int, Field(ge=MAX_BODY_BYTES)] = 32 * 1024 * 1024
    rate_limit: Annotated[str, Field(pattern=f"^{RATE}$")] | None = None
    push_timeout_seconds: Annotated[float, Field(gt=0, le=300)] = 30.0
    held_at_most: Annotated[int, Field(ge=1)] = 8000
    lease_seconds: Annotated[float, Field(gt=0)] = 45.0
    session_seconds: Annotated[float, Field(ge=1, le=300)] = 10.0
    webhook_timeout_seconds: Annotated[float, Field(gt=0, le=60)] = 15.0
    webhook_private_addresses: bool = False
    grace_seconds: Annotated[float, Field(ge=0)] = 20.0
    log_level: Annotated[str, Field(pattern="^(debug|info|warning|error)$")] = "info"
    log_format: LogFormat = "auto"


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
    def worker(self) -> WorkerSettings:
        environment = self.environment
        return WorkerSettings(
            # Deployments that share a Kafka share no group: one's rebalances are none of the other's.
            group=f"{environment.topic_prefix}{GROUP}",
            held_at_most=environment.held_at_most,
            lease_seconds=environment.lease_seconds,
            grace_seconds=environment.grace_seconds,
            settle_seconds=environment.push_timeout_seconds,
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


def _in_words(error: ValidationError) -> list[str]:
    return [
        f"FORWARDER_{'_'.join(str(step) for step in detail['loc'][:1]).upper()}: {detail['msg']}"
        for detail in error.errors(include_input=False, include_url=False)
    ]
