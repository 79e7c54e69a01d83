"""The variables `FORWARDER_…`: their names, forms and defaults."""

import re
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from forwarder.observability.logging import LogFormat
from forwarder.pms.accounts import Plaintext
from forwarder.reservation.checks.card_numbers import CardNumbersInText
from forwarder.reservation.request import MAX_BODY_BYTES
from forwarder.tenancy.access import DEFAULT_PER_MINUTE, RATE
from forwarder.tenancy.port import read_networks
from forwarder.topics.kafka.security import Mechanism, Protocol

PREFIX: Final = "FORWARDER_"


class BadSettings(ValueError):
    """The environment is no valid configuration. The message names each variable at fault and what would be right."""


def _proxy(given: SecretStr) -> SecretStr:
    if not re.fullmatch(r"https?://[^\s/?#]+/?", given.get_secret_value()):
        raise ValueError("must be the URL of a proxy, such as http://egress.example:3128")
    return given


def _networks(text: str) -> str:
    networks = read_networks([text])
    if text and not networks:
        raise ValueError("Name the proxies: an address or a network in CIDR notation, several with commas between.")
    return ",".join(map(str, networks))


class Environment(BaseModel):
    """The variables, each `FORWARDER_` and the field's name in capitals. Times are in seconds. The docstrings are the texts of
    docs/reference/settings.md: run `python -m tools.reference write` after a change."""

    model_config = ConfigDict(frozen=True, extra="ignore", validate_default=True)
    trusted_proxies: Annotated[str, AfterValidator(_networks)] = ""
    """Trust `X-Forwarded-For` and `X-Forwarded-Proto` only from these proxies: addresses or networks (CIDR), comma-separated.
    Default: none."""
    bad_tokens_per_minute: Annotated[int, Field(ge=1)] = DEFAULT_PER_MINUTE
    """How many requests with unknown API keys from one address get 401 per minute; more get 429. Valid keys from there still
    work."""
    metrics_token: Annotated[SecretStr, Field(min_length=16)] | None = None
    """Bearer token required for `/metrics`; at least 16 characters. Default: no authentication."""
    metrics_token_file: Path | None = None
    """A file with the token, instead of `FORWARDER_METRICS_TOKEN`."""
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
    """For `OAUTHBEARER`: the token endpoint of the authorization server, for the client credentials grant."""
    kafka_sasl_oauth_client_id: str | None = None
    """For `OAUTHBEARER`: the client."""
    kafka_sasl_oauth_client_secret: SecretStr | None = None
    """For `OAUTHBEARER`: its secret."""
    kafka_sasl_oauth_client_secret_file: Path | None = None
    """A file with that secret, instead of `FORWARDER_KAFKA_SASL_OAUTH_CLIENT_SECRET`."""
    kafka_sasl_oauth_scope: str | None = None
    """For `OAUTHBEARER`: the scope to request, if the server needs one."""
    kafka_sasl_oauth_token_file: Path | None = None
    """For `OAUTHBEARER`: a file with an access token that another program renews, instead of a token server."""
    kafka_ca_file: Path | None = None
    """The certificate authorities (PEM) for brokers' certificates. Default: the system's."""
    kafka_certificate_file: Path | None = None
    """The client certificate (PEM), if the brokers require one."""
    kafka_key_file: Path | None = None
    """Its key (PEM), without a password."""
    database_url: str | None = None
    """PostgreSQL: `postgresql://user:password@host:5432/name?sslmode=verify-full&sslrootcert=/path/ca.pem`. `sslcert`, `sslkey` and
    the rest are libpq's. Several servers: `postgresql://user:password@host1:5432,host2:5432/name`; uses the first writable one,
    unless `target_session_attrs` says otherwise."""
    database_url_file: Path | None = None
    """A file with the URL, instead of `FORWARDER_DATABASE_URL`."""
    database_password: SecretStr | None = None
    """The password, if the URL has only the user: `postgresql://user@host:5432/name`."""
    database_password_file: Path | None = None
    """A file with it, instead of `FORWARDER_DATABASE_PASSWORD`."""
    allow_plaintext: bool = False
    """Allow connections to Kafka and PostgreSQL without encryption. Default: only on this machine."""
    allow_plaintext_pms: bool = False
    """Allow credentials and reservations, without cards, to be sent to PMSs over plain http. Default: only on this machine."""
    allow_plaintext_cards: bool = False
    """Allow cards, and everything else, to be sent to PMSs over plain http. Default: only on this machine."""
    data_dir: Path = Path(".forwarder")
    """The directory of the embedded log and store."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """Port to listen on."""
    tls_certificate_file: Path | None = None
    """The certificate (PEM) for serving HTTPS, with its chain. Default: plain HTTP, for a proxy that terminates TLS."""
    tls_key_file: Path | None = None
    """Its key (PEM), without a password."""
    tls_client_ca_file: Path | None = None
    """The certificate authorities (PEM) for clients' certificates. Default: clients need no certificate."""
    public_url: Annotated[str, Field(pattern=r"^(https?://[^/\s?#@]+)?$")] = ""
    """Base URL of the service as callers reach it, such as `https://reservations.example.com`; each `statusUrl` and each problem's
    `type` begins with it. Default: the request's host, which a proxy may change and a caller may forge."""
    console_plaintext: bool = False
    """Serve the console over plain HTTP on any address, for a proxy that terminates TLS. Default: only on this machine."""
    grafana_url: Annotated[str, Field(pattern=r"^(https?://[^/\s?#@]+/[^\s?#]*)?$")] = ""
    """The dashboard of `deploy/monitoring` in your Grafana, such as `https://grafana.example.com/d/forwarder`: the console's
    overview links to it for more than the last 30 minutes."""
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
    """For processes without the secret: the key that verifies the signatures on the public keys in the database; several
    separated by commas. Printed by `forwarder secret status`."""
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
    """Prefix of the names of all topics and consumer groups."""
    partitions: Annotated[int, Field(ge=1, le=1000)] = 16
    """The number of partitions of each topic that `forwarder topics create` creates. Limits how many workers can share the work."""
    wait_seconds: Annotated[float, Field(ge=0, le=300)] = 10.0
    """How long the general operation waits for an outcome."""
    max_wait_seconds: Annotated[int, Field(ge=0, le=300)] = 60
    """The longest `Prefer: wait=N`."""
    max_requests: Annotated[int, Field(ge=1)] = 5000
    """How many requests one process handles at once, not counting those that wait for an outcome. One workspace gets at most two
    thirds. Above the limit: 503 with `Retry-After`."""
    max_request_bytes: Annotated[int, Field(ge=MAX_BODY_BYTES)] = 48 * 1024 * 1024
    """The same limit for the bytes received of their bodies, until they are safe. It also limits a bulk, which is never larger than
    8 MiB."""
    max_response_bytes: Annotated[int, Field(ge=1024 * 1024)] = 64 * 1024 * 1024
    """The same limit for responses of more than 64 KiB that clients are still reading."""
    max_connections: Annotated[int, Field(ge=1)] = 8192
    """The maximum of HTTP client connections of one process, also limited by its open files. Idle ones are ended to make room."""
    max_connections_per_address: Annotated[int, Field(ge=1)] = 4096
    """The maximum from one client's IPv4 address or IPv6 /64. Behind a proxy that is the proxy's address: set both limits alike."""
    head_seconds: Annotated[float, Field(gt=0, le=300)] = 10.0
    """How long the target and headers of a request may take to arrive."""
    body_seconds: Annotated[float, Field(gt=0, le=300)] = 10.0
    """How long the body of a request may take to arrive."""
    card_numbers_in_text: CardNumbersInText = "mask"
    """On a card number or security code in a text such as `notes`: `mask` its digits, or `refuse` the request. `refuse` also
    refuses identifiers, such as `transactionId`, that look like card numbers: one random number of 16 digits in 37 does."""
    rate_limit: Annotated[str, Field(pattern=f"^{RATE}$")] | None = None
    """The rate limit of API keys without one of their own, for submitting, cancelling and managing webhooks: `100/60s` is 100 in
    60 seconds. Default: no limit."""
    push_timeout_seconds: Annotated[float, Field(gt=0, le=300)] = 30.0
    """How long a PMS may take to answer."""
    settles_seconds: Annotated[float, Field(ge=0, le=3600)] = 120.0
    """How long a PMS may take to show a reservation, including a late commit, if its kind does not state it."""
    max_held: Annotated[int, Field(ge=1)] = 8000
    """Reservations that one worker holds in memory. The rest wait in the store."""
    lease_seconds: Annotated[float, Field(gt=0, le=3600)] = 45.0
    """How long a silent worker keeps its rows. At least 1.5 times the push time-out."""
    session_seconds: Annotated[float, Field(ge=1, le=300)] = 10.0
    """How long a silent process keeps its partitions. The brokers must allow it: `group.min.session.timeout.ms`, 6 s."""
    member_name: Annotated[str, Field(pattern=r"^([A-Za-z0-9._-]|\{hostname\}){0,150}$")] = ""
    """A name that no other worker or notifier has, and that this one keeps when it is started again: after it was killed, it has
    its partitions back as soon as it is there, and need not wait for `FORWARDER_SESSION_SECONDS`. `{hostname}` is replaced by the
    host's name, which suits containers that are restarted in place."""
    webhook_timeout_seconds: Annotated[float, Field(gt=0, le=60)] = 15.0
    """How long a customer's endpoint may take to answer."""
    webhook_private_addresses: bool = False
    """Allow webhooks to private addresses and over plain http. Default: https to public addresses only; embedded, also loopback."""
    webhook_proxy: Annotated[SecretStr, AfterValidator(_proxy)] | None = None
    """The HTTP proxy through which webhooks are posted, such as `http://egress.example:3128`, with a user name and password if it
    needs them. It resolves the hosts, and must refuse private addresses itself. Default: webhooks are posted directly."""
    metrics_accounts: Annotated[int, Field(ge=0, le=10_000)] = 100
    """How many accounts, and webhook endpoints, metrics name: those with the largest backlog. The rest together are `other`."""
    revision: str = ""
    """The `revision` label of `forwarder_build_info`. The container image sets it."""
    lame_duck_seconds: Annotated[float, Field(ge=0, le=60)] = 5.0
    """How long a stopping process still accepts requests: it is no longer ready, and ends each connection with its response. Set it
    to the time that load balancers take to notice. `forwarder up` does not wait."""
    grace_seconds: Annotated[float, Field(ge=0, le=3600)] = 20.0
    """How long a stopping process lets work in progress finish."""
    core_dumps: bool = False
    """Allow core dumps, which contain cards, and debuggers. For development only."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """`debug`, `info`, `warning` or `error`."""
    log_format: LogFormat = "auto"
    """`json`, `pretty`, or `auto`: pretty on a terminal, JSON otherwise."""
    log_usual_share: Annotated[float, Field(ge=0, le=1)] = 1.0
    """The share of submissions accepted and confirmed at the first attempt whose lines are logged: 0.01 is one in a hundred, the
    same ones in all processes. Submissions with any other course are always logged."""

    @property
    def plaintext_to_pms(self) -> Plaintext:
        return Plaintext.EVERYTHING if self.allow_plaintext_cards else Plaintext(self.allow_plaintext_pms)


def variable(name: str) -> str:
    return f"{PREFIX}{name.upper()}"


def secret(value: SecretStr | None) -> str | None:
    return None if value is None else value.get_secret_value()
