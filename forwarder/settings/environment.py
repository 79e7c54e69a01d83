"""The variables `FORWARDER_…`: their names, forms and defaults."""

from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from forwarder.observability.logging import LogFormat
from forwarder.pms.encryption import Plaintext
from forwarder.reservation.checks.card_numbers import CardNumbersInText
from forwarder.reservation.request import MAX_BODY_BYTES
from forwarder.settings.access import AccessVariables
from forwarder.tenancy.limits import RATE
from forwarder.topics.kafka.security.transport import Mechanism, Protocol

PREFIX: Final = "FORWARDER_"


class BadSettings(ValueError):
    """The environment does not make a configuration. The message names each variable at fault and what would be right."""


class Environment(AccessVariables, BaseSettings):
    """The variables, each `FORWARDER_` and the field's name in capitals. Times are in seconds.

    The docstrings are the texts of docs/reference/settings.md: run `python -m tools.reference write` after a change.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, env_ignore_empty=True, extra="ignore")

    kafka_bootstrap_servers: str | None = None
    """Kafka brokers. Set together with `FORWARDER_DATABASE_URL`, or leave both out to run embedded."""
    kafka_security_protocol: Protocol = "PLAINTEXT"
    """`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`: the protocol of the brokers' listener."""
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
    kafka_sasl_oauth_token_file: Path | None = None
    """For `OAUTHBEARER`: a file with an access token that another program renews, instead of a token server."""
    kafka_ca_file: Path | None = None
    """The authorities (PEM) that brokers' certificates must be signed by. Unset: the system's."""
    kafka_certificate_file: Path | None = None
    """The certificate (PEM) that the brokers know us by, where they want one."""
    kafka_key_file: Path | None = None
    """Its key (PEM), without a password."""
    database_url: str | None = None
    """PostgreSQL: `postgresql://user:password@host:5432/name?sslmode=verify-full&sslrootcert=/path/ca.pem`. `sslcert`, `sslkey` and
    the rest are libpq's. Several servers: `postgresql://user:password@host1:5432,host2:5432/name`; the first that can be written to
    is used, unless `target_session_attrs` says otherwise."""
    database_url_file: Path | None = None
    """A file with the URL, instead of `FORWARDER_DATABASE_URL`."""
    database_password: SecretStr | None = None
    """The password, where the URL names the user alone: `postgresql://user@host:5432/name`."""
    database_password_file: Path | None = None
    """A file with it, instead of `FORWARDER_DATABASE_PASSWORD`."""
    allow_plaintext: bool = False
    """Kafka and PostgreSQL may be reached without encryption anywhere. By default only on this machine."""
    allow_plaintext_pms: bool = False
    """Credentials and reservations may be sent to PMSs by plain http anywhere, cards not. By default only on this machine."""
    allow_plaintext_cards: bool = False
    """Cards, and all else, may be sent to PMSs by plain http anywhere. By default only on this machine."""
    data_dir: Path = Path(".forwarder")
    """Where the embedded log and store are kept."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """Port to listen on."""
    tls_certificate_file: Path | None = None
    """The certificate (PEM) to serve HTTPS with, and its chain. Unset: plain HTTP, for a proxy that ends TLS."""
    tls_key_file: Path | None = None
    """Its key (PEM), without a password."""
    tls_client_ca_file: Path | None = None
    """The authorities (PEM) that clients' certificates must be signed by. Unset: clients need none."""
    public_url: Annotated[str, Field(pattern=r"^(https?://[^/\s?#@]+)?$")] = ""
    """Base URL of the service as callers reach it, such as `https://reservations.example.com`; each `statusUrl` begins with it.
    Default: the request's host, which a proxy may change and a caller may forge."""
    console_plaintext: bool = False
    """The console may be served by plain HTTP on any address, for a proxy that ends TLS. By default only on this machine."""
    secret_key: Annotated[SecretStr, Field(min_length=32)] | None = None
    """The secret that seals cards and credentials: the output of `forwarder secret generate`, or other random text of at least 32
    characters. An embedded forwarder generates one and keeps it in the data directory."""
    secret_key_file: Path | None = None
    """A file with the secret, instead of `FORWARDER_SECRET_KEY`."""
    earlier_secret_keys: SecretStr | None = None
    """Other secrets of this deployment, one a line: earlier ones, or the next one during a rotation."""
    earlier_secret_keys_file: Path | None = None
    """A file with them, instead of `FORWARDER_EARLIER_SECRET_KEYS`. May be empty."""
    sealing_verify_key: str | None = None
    """For processes without the secret: whose signature the public keys in the database must have; several are parted by commas.
    `forwarder secret status` prints it."""
    sealing_verify_key_file: Path | None = None
    """A file with it, instead of `FORWARDER_SEALING_VERIFY_KEY`."""
    notifier_key: SecretStr | None = None
    """The key with which a notifier opens webhooks' secrets, instead of the deployment's secret; it opens nothing else. Printed by
    `forwarder secret status --notifier-key`; during a rotation several, one a line."""
    notifier_key_file: Path | None = None
    """A file with it, instead of `FORWARDER_NOTIFIER_KEY`."""
    trace_to_pms: bool = True
    """Requests to PMSs carry the caller's `traceparent`, so that a PMS's logs can be matched with the caller's trace."""
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
    """Requests that one process handles at once; callers waiting for an outcome are not counted. One workspace gets two thirds at
    the most. Above it: 503 with `Retry-After`."""
    max_request_bytes: Annotated[int, Field(ge=MAX_BODY_BYTES)] = 48 * 1024 * 1024
    """The same limit for the bytes received of their bodies, until they are safe. It also limits a bulk, which is never larger than
    8 MiB."""
    max_response_bytes: Annotated[int, Field(ge=1024 * 1024)] = 64 * 1024 * 1024
    """The same limit for responses of more than 64 KiB that clients are still reading."""
    max_connections: Annotated[int, Field(ge=1)] = 8192
    """Connections of HTTP clients that one process holds; never more than it may open files. Those without a request make room."""
    max_connections_per_address: Annotated[int, Field(ge=1)] = 4096
    """The same of one client's IPv4 address or IPv6 /64. Behind a proxy that is the proxy's: set both alike."""
    head_seconds: Annotated[float, Field(gt=0, le=300)] = 10.0
    """How long the target and headers of a request may take to come."""
    body_seconds: Annotated[float, Field(gt=0, le=300)] = 10.0
    """How long the body of a request may take to come."""
    card_numbers_in_text: CardNumbersInText = "refuse"
    """On a card number or security code in a text such as `notes`: `refuse` the request, or `mask` it."""
    rate_limit: Annotated[str, Field(pattern=f"^{RATE}$")] | None = None
    """The rate limit of API keys without one of their own, for submitting, cancelling and managing webhooks: `100/60s` is 100 in
    60 seconds. Default: no limit."""
    push_timeout_seconds: Annotated[float, Field(gt=0, le=300)] = 30.0
    """How long a PMS may take to answer."""
    settles_seconds: Annotated[float, Field(ge=0, le=3600)] = 120.0
    """How long a PMS may take to show a reservation, a late commit included, where its kind states nothing."""
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
    metrics_accounts: Annotated[int, Field(ge=0, le=10_000)] = 100
    """How many accounts, and webhook endpoints, metrics name: those with the largest backlog. The rest together are `other`."""
    revision: str = ""
    """The `revision` label of `forwarder_build_info`. The container image sets it."""
    lame_duck_seconds: Annotated[float, Field(ge=0, le=60)] = 5.0
    """How long a stopping process still accepts requests: it is no longer ready, and ends each connection with its response. Set it
    to the time that load balancers take to notice. `forwarder up` does not wait."""
    grace_seconds: Annotated[float, Field(ge=0)] = 20.0
    """How long a stopping process lets work in progress finish."""
    core_dumps: bool = False
    """A crashed process may leave its memory on disk, cards included, and debuggers may read it. For development only."""
    log_level: Annotated[str, Field(pattern="^(debug|info|warning|error)$")] = "info"
    """`debug`, `info`, `warning` or `error`."""
    log_format: LogFormat = "auto"
    """`json`, `pretty`, or `auto`: pretty on a terminal, JSON otherwise."""
    log_usual_share: Annotated[float, Field(ge=0, le=1)] = 1.0
    """The share of submissions accepted and confirmed at the first attempt whose lines are logged: 0.01 is one in a hundred, the
    same ones in all processes. Submissions with any other course are always logged."""

    @property
    def plaintext_to_pms(self) -> Plaintext:
        return Plaintext.allowed(pms=self.allow_plaintext_pms, cards=self.allow_plaintext_cards)


def variable(name: str) -> str:
    """The variable of that field."""
    return f"{PREFIX}{name.upper()}"


def secret(value: SecretStr | None) -> str | None:
    """In clear."""
    return None if value is None else value.get_secret_value()
