"""Reads the environment, checks it as a whole, with values from files, and makes each component's settings from it."""

import ctypes
import os
import resource
import socket
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from math import log2
from pathlib import Path
from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from forwarder.http.connections import ConnectionLimits, TlsFiles
from forwarder.http.messages import Admission
from forwarder.notifier.posting import GROUP as NOTIFIER_GROUP
from forwarder.notifier.posting import NotifierSettings
from forwarder.observability.logging import configure_logging
from forwarder.process.addresses import is_local
from forwarder.process.supervision import PROCESS_NUMBER, SHARED_ADDRESS
from forwarder.reservation.request import MAX_BODY_BYTES
from forwarder.settings.backend import Distributed, Embedded, backend_of
from forwarder.settings.environment import PREFIX, BadSettings, Environment, secret, variable
from forwarder.tenancy.access import read_limit
from forwarder.tenancy.port import RateLimit
from forwarder.topics.port import Topics
from forwarder.webhooks.addresses import AddressRule
from forwarder.worker.parts import GROUP, WorkerSettings

_LEASE_TO_PUSH: Final = 1.5
_FOR_CLIENTS: Final = {"FORWARDER_URL", "FORWARDER_TOKEN", "FORWARDER_WORKSPACE"}  # printed by `forwarder up`


@dataclass(frozen=True, slots=True)
class GivenSecrets:
    """`present` seals; `earlier` are the deployment's other secrets. A process without a secret may have `notifier_keys`, and
    `verify_keys` to decide which public keys to trust."""

    present: str | None = field(repr=False)
    earlier: Sequence[str] = field(repr=False)
    notifier_keys: Sequence[bytes] = field(repr=False)
    verify_keys: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class TraceExport:
    """`asked_by`: the variable that asks for export, empty if none does. `refusal`: why it is not exported as asked. A refusal
    stops nothing: operators often set these variables for all processes of a machine."""

    asked_by: str = ""
    refusal: str = ""


NOT_EXPORTED: Final = TraceExport()


@dataclass(frozen=True, slots=True)
class Settings:
    environment: Environment
    backend: Embedded | Distributed
    secrets: GivenSecrets
    tls: TlsFiles | None = None  # the files for serving HTTPS; None for plain HTTP
    trace_export: TraceExport = NOT_EXPORTED

    @property
    def topics(self) -> Topics:
        return Topics(self.environment.topic_prefix)

    @property
    def rate_limit(self) -> RateLimit | None:
        return None if self.environment.rate_limit is None else read_limit(self.environment.rate_limit)

    @property
    def metrics_token(self) -> str | None:
        return secret(self.environment.metrics_token)

    @property
    def connections(self) -> ConnectionLimits:
        given = self.environment
        of_clients = (given.max_connections, given.max_connections_per_address)
        return ConnectionLimits(*of_clients, given.head_seconds, given.body_seconds)

    def admission(self) -> Admission:
        given = self.environment
        # Large enough that one workspace's share admits a body of the maximum size.
        bodies, responses = max(given.max_request_bytes, 2 * MAX_BODY_BYTES), given.max_response_bytes
        return Admission(max_requests=given.max_requests, max_body_bytes=bodies, max_response_bytes=responses)

    @property
    def worker(self) -> WorkerSettings:
        environment = self.environment
        return WorkerSettings(
            # Deployments that share a Kafka cluster have separate groups, so that one's rebalances do not affect the other.
            group=f"{environment.topic_prefix}{GROUP}",
            max_held=environment.max_held,
            lease_seconds=environment.lease_seconds,
            grace_seconds=environment.grace_seconds,
            push_seconds=environment.push_timeout_seconds,
            settles_seconds=environment.settles_seconds,
            max_named_accounts=environment.metrics_accounts,
            public_url=environment.public_url,
        )

    @property
    def notifier(self) -> NotifierSettings:
        given, group = self.environment, f"{self.environment.topic_prefix}{NOTIFIER_GROUP}"
        seconds = given.webhook_timeout_seconds
        return NotifierSettings(group=group, post_seconds=seconds, grace_seconds=given.grace_seconds)

    @property
    def member_name(self) -> str | None:
        """The name of this process among the members of its consumer group; None if it has none."""
        name = self.environment.member_name.replace("{hostname}", socket.gethostname())
        number = os.environ.get(PROCESS_NUMBER)
        return f"{name}-{number}" if name and number else name or None

    @property
    def webhook_addresses(self) -> AddressRule:
        """The addresses that webhooks may use; embedded also this machine's own, so that webhooks can be tried."""
        private = self.environment.webhook_private_addresses
        return AddressRule(private=private, loopback=isinstance(self.backend, Embedded))


def read_settings() -> Settings:
    """The settings from the environment; an empty variable counts as not set. Raises `BadSettings`."""
    # A misspelt variable would be ignored, and what it should protect would be left open.
    known = {variable(name) for name in Environment.model_fields} | {SHARED_ADDRESS, PROCESS_NUMBER} | _FOR_CLIENTS
    refused = []
    for name in sorted(os.environ):
        whole = name.upper()
        if whole.startswith(PREFIX) and whole not in known and not whole.startswith("FORWARDER_TEST_"):
            nearest = get_close_matches(whole.removeprefix(PREFIX), [each.removeprefix(PREFIX) for each in known], n=1)
            see = "docs/reference/settings.md lists those there are."
            refused.append(f"{name} is no setting. {f'Did you mean {PREFIX}{nearest[0]}?' if nearest else see}")
    if refused:
        raise BadSettings("\n".join(refused))
    given = {name.upper(): value for name, value in os.environ.items() if value}
    ours = {name: given[variable(name)] for name in Environment.model_fields if variable(name) in given}
    try:
        return replace(settings_of(Environment.model_validate(ours)), trace_export=trace_export_of(os.environ))
    except ValidationError as error:
        details = error.errors(include_input=False, include_url=False)
        lines = [f"{''.join(variable(str(step)) for step in each['loc'][:1])}: {_fault(each)}" for each in details]
        raise BadSettings("\n".join(lines)) from None


def settings_and_logging(level: str | None = None) -> Settings:
    """The settings from the environment. Configures logging, at `level` rather than at the configured one; and disables core dumps
    of this process, which could hold cards, whatever the system's setting, and on Linux also reading its memory from other
    processes of the same user (`PR_SET_DUMPABLE`). Children decide for themselves."""
    settings = read_settings()
    environment = settings.environment
    configure_logging(level or environment.log_level, environment.log_format, environment.log_usual_share)
    if not environment.core_dumps:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if sys.platform == "linux":
            pr_set_dumpable = 4
            ctypes.CDLL(None).prctl(pr_set_dumpable, 0, 0, 0, 0)
    return settings


def _fault(detail: ErrorDetails) -> str:
    """What is wrong with a value, where pydantic's words are for programmers."""
    if detail["type"] == "too_short":
        return f"must have at least {detail['ctx']['min_length']} characters"
    if detail["type"] == "string_pattern_mismatch":
        return "is not written as docs/reference/settings.md says"
    return detail["msg"].removeprefix("Value error, ")


def settings_of(environment: Environment) -> Settings:
    """The settings for these variables. Raises `BadSettings`; `ValidationError` for a value in a file."""
    environment = environment.model_validate(environment.model_dump() | _from_files(environment))
    least = environment.push_timeout_seconds * _LEASE_TO_PUSH
    if environment.lease_seconds < least:
        raise BadSettings(
            f"FORWARDER_LEASE_SECONDS must be at least {_LEASE_TO_PUSH} times FORWARDER_PUSH_TIMEOUT_SECONDS, so {least:g}: it is "
            "renewed when a third of it is over, and a push that starts then must end, and be recorded, within the rest."
        )
    certificate, key, tls = environment.tls_certificate_file, environment.tls_key_file, None
    names = ("tls_certificate_file", "tls_key_file", "tls_client_ca_file")
    named = ", ".join(f"{variable(name)}={path}" for name in names if (path := getattr(environment, name)) is not None)
    if named and (certificate is None or key is None):
        missing = [variable(name) for name in names[:2] if getattr(environment, name) is None]
        raise BadSettings(f"{' and '.join(missing)} must be set, because {named} is: HTTPS needs both.")
    if certificate is not None and key is not None:
        tls = TlsFiles(certificate, key, environment.tls_client_ca_file)
        try:
            tls.context()
        except OSError as error:
            raise BadSettings(f"{named} cannot be used: {error.strerror or error}") from None
    backend = backend_of(environment)
    return Settings(environment, backend, given_secrets(environment, backend), tls)


def _from_files(environment: Environment) -> dict[str, str]:
    """The values from files, without the final line break that editors add."""
    values = {}
    for name in Environment.model_fields:
        file: Path | None = getattr(environment, f"{name}_file", None)
        if file is None:
            continue
        if getattr(environment, name) is not None:
            raise BadSettings(f"{variable(name)} and {variable(name)}_FILE are both set: which of them is meant?")
        try:
            values[name] = file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise BadSettings(f"{variable(name)}_FILE: {file} cannot be read: {why}") from None
        # A deployment may mount this one, and fill it only during a rotation.
        if not values[name] and name != "earlier_secret_keys":
            raise BadSettings(f"{variable(name)}_FILE: {file} is empty")
    return values


_MIN_LENGTH: Final = 16
"""For an earlier secret. The current one needs twice as many characters (`FORWARDER_SECRET_KEY`)."""
_MIN_BITS: Final = 80.0  # Random text of 32 hexadecimal digits has 116 as `_bits` counts, and one in 100,000 has 92


def given_secrets(environment: Environment, backend: Embedded | Distributed) -> GivenSecrets:
    """The secrets and keys. Raises `BadSettings`, quoting none: for malformed keys, and published secrets beyond this machine."""
    present, earlier = secret(environment.secret_key), secret_lines(secret(environment.earlier_secret_keys))
    if any(each.startswith("DEVELOPMENT-ONLY") for each in (present or "", *earlier)):  # as in our docs and examples
        hosts = (environment.host, *(backend.hosts if isinstance(backend, Distributed) else ()))
        away = next((host for host in hosts if not is_local(host)), None)
        if away is not None:
            raise BadSettings(
                f"FORWARDER_SECRET_KEY is one that is published, for development on one machine, and {away} is not on it. "
                "`forwarder secret generate` makes a private one."
            )
    elif present is not None and _bits(present) < _MIN_BITS:
        raise BadSettings(
            "FORWARDER_SECRET_KEY is too repetitive, and can be guessed by brute force from a copy of the database. "
            "`forwarder secret generate` makes a strong one."
        )
    notifier_keys = read_keys("FORWARDER_NOTIFIER_KEY", (secret(environment.notifier_key) or "").splitlines())
    verify_keys = read_keys("FORWARDER_SEALING_VERIFY_KEY", (environment.sealing_verify_key or "").split(","))
    return GivenSecrets(present, earlier, notifier_keys, verify_keys)


def secret_lines(text: str | None) -> Sequence[str]:
    """The secrets in `text`, one a line. Raises `BadSettings`."""
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    if any(len(line) < _MIN_LENGTH for line in lines):
        raise BadSettings(f"FORWARDER_EARLIER_SECRET_KEYS: each line must have at least {_MIN_LENGTH} characters.")
    return lines


def read_keys(name: str, texts: Iterable[str]) -> Sequence[bytes]:
    """Keys of 32 bytes, each written as 64 hexadecimal digits. Raises `BadSettings`."""
    try:
        keys = [bytes.fromhex(text.strip()) for text in texts if text.strip()]
    except ValueError:
        keys = [b""]
    if any(len(key) != 32 for key in keys):  # noqa: PLR2004 - bytes
        raise BadSettings(f"{name}: a key has 64 hexadecimal digits.")
    return keys


def _bits(text: str) -> float:
    """An upper bound on the entropy in bits, from character frequencies (Shannon); words have less. A repeated text counts once."""
    text = text[: (text + text).find(text, 1)]
    return sum(count * log2(len(text) / count) for count in Counter(text).values())


# --- the export of traces: decided by OpenTelemetry's own variables; its SDK reads the rest of them ---


def trace_export_of(variables: Mapping[str, str]) -> TraceExport:
    given = {name: value.strip() for name, value in variables.items() if name.startswith("OTEL_") and value.strip()}
    exporter, wanted = "OTEL_TRACES_EXPORTER", "http/protobuf"
    exporters = {each.strip() for each in given.get(exporter, "").lower().split(",")} - {""}
    asking = (exporter, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    asked_by = next((name for name in asking if name in given), "")
    if not asked_by or "none" in exporters or given.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return NOT_EXPORTED
    if exporters and "otlp" not in exporters:
        return TraceExport(asked_by, f"{exporter} is {given[exporter]}, and traces are exported by otlp alone")
    protocols = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = next((name for name in protocols if name in given), None)
    if protocol is None or given[protocol] == wanted:
        return TraceExport(asked_by)
    refusal = f"{protocol} is {given[protocol]}, and traces are exported by {wanted} alone"
    return TraceExport(asked_by, f"{refusal}: collectors take that at port 4318")
