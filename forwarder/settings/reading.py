"""Reads the environment and checks it as a whole: unknown names, values from files, and each component's settings."""

import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from forwarder.http.admission import Admission
from forwarder.http.connections import ConnectionLimits
from forwarder.http.tls import TlsFiles
from forwarder.notifier.settings import GROUP as NOTIFIER_GROUP
from forwarder.notifier.settings import NotifierSettings
from forwarder.process.supervision import PROCESS_NUMBER, SHARED_ADDRESS
from forwarder.reservation.request import MAX_BODY_BYTES
from forwarder.settings.backend import Distributed, Embedded, backend_of
from forwarder.settings.environment import PREFIX, BadSettings, Environment, secret, variable
from forwarder.settings.inbound import check_tls, tls_files
from forwarder.settings.secrets import GivenSecrets, given_secrets
from forwarder.settings.tracing import NOT_EXPORTED, TraceExport, trace_export_of
from forwarder.tenancy.limits import read_limit
from forwarder.tenancy.port import RateLimit
from forwarder.topics.port import Topics
from forwarder.webhooks.addresses import AddressRule
from forwarder.worker.parts import GROUP, WorkerSettings

_LEASE_TO_PUSH: Final = 1.5
_NO_SETTINGS: Final = {
    SHARED_ADDRESS,
    PROCESS_NUMBER,
    # Printed by `forwarder up` for clients in the same shell.
    "FORWARDER_URL",
    "FORWARDER_TOKEN",
    "FORWARDER_WORKSPACE",
}
_OF_THE_TESTS: Final = "FORWARDER_TEST_"

_IN_FILES: Final = (
    "secret_key",
    "earlier_secret_keys",
    "notifier_key",
    "sealing_verify_key",
    "database_url",
    "database_password",
    "kafka_sasl_password",
    "kafka_sasl_oauth_client_secret",
    "metrics_token",
)
"""Variables that can be read from the file that `…_file` names."""
_MAY_BE_EMPTY: Final = "earlier_secret_keys"
"""A deployment may mount this file permanently and fill it only during a rotation."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The checked settings."""

    environment: Environment
    backend: Embedded | Distributed
    secrets: GivenSecrets
    trace_export: TraceExport = NOT_EXPORTED

    @property
    def topics(self) -> Topics:
        return Topics(self.environment.topic_prefix)

    @property
    def rate_limit(self) -> RateLimit | None:
        """The limit for API keys that have none of their own."""
        written = self.environment.rate_limit
        return None if written is None else read_limit(written)

    @property
    def metrics_token(self) -> str | None:
        """The token that `/metrics` requires; None: no authentication."""
        return secret(self.environment.metrics_token)

    @property
    def tls(self) -> TlsFiles | None:
        """The files for serving HTTPS; None for plain HTTP."""
        return tls_files(self.environment)

    @property
    def connections(self) -> ConnectionLimits:
        environment = self.environment
        return ConnectionLimits(
            max_connections=environment.max_connections,
            max_per_address=environment.max_connections_per_address,
            head_seconds=environment.head_seconds,
            body_seconds=environment.body_seconds,
        )

    def admission(self) -> Admission:
        """A fresh admission control with this process's HTTP limits."""
        environment = self.environment
        return Admission(
            max_requests=environment.max_requests,
            # Large enough that one workspace's share admits a body of the maximum size.
            max_body_bytes=max(environment.max_request_bytes, 2 * MAX_BODY_BYTES),
            max_response_bytes=environment.max_response_bytes,
        )

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
        environment = self.environment
        return NotifierSettings(
            group=f"{environment.topic_prefix}{NOTIFIER_GROUP}",
            post_seconds=environment.webhook_timeout_seconds,
            grace_seconds=environment.grace_seconds,
        )

    @property
    def member_name(self) -> str | None:
        """The name of this process among the members of its consumer group; None if it has none."""
        name = self.environment.member_name.replace("{hostname}", socket.gethostname())
        number = os.environ.get(PROCESS_NUMBER)
        if not name:
            return None
        return f"{name}-{number}" if number else name

    @property
    def webhook_addresses(self) -> AddressRule:
        """The addresses that webhooks may use; embedded also this machine's own, so that webhooks can be tried."""
        private = self.environment.webhook_private_addresses
        return AddressRule(private=private, loopback=isinstance(self.backend, Embedded))

    @property
    def webhook_proxy(self) -> str | None:
        """The URL of the proxy for webhooks, with its password."""
        proxy = self.environment.webhook_proxy
        return None if proxy is None else proxy.get_secret_value()


def read_settings() -> Settings:
    """The settings from the environment. Raises `BadSettings`."""
    _refuse_unknown(os.environ)
    try:
        return replace(settings_of(_environment_of(os.environ)), trace_export=trace_export_of(os.environ))
    except ValidationError as error:
        raise BadSettings("\n".join(_in_words(error))) from None


def _environment_of(variables: Mapping[str, str]) -> Environment:
    """Our variables, in capitals or not. An empty one counts as not set."""
    ours = {name.upper(): value for name, value in variables.items() if value}
    given = {
        name: ours[f"{PREFIX}{name.upper()}"] for name in Environment.model_fields if f"{PREFIX}{name.upper()}" in ours
    }
    return Environment.model_validate(given)


def settings_of(environment: Environment) -> Settings:
    """The settings for these variables. Raises `BadSettings`; `ValidationError` for a value in a file."""
    environment = environment.model_validate(environment.model_dump() | _from_files(environment))
    least = environment.push_timeout_seconds * _LEASE_TO_PUSH
    if environment.lease_seconds < least:
        raise BadSettings(
            f"FORWARDER_LEASE_SECONDS must be at least {_LEASE_TO_PUSH} times FORWARDER_PUSH_TIMEOUT_SECONDS, so {least:g}: it is "
            "renewed when a third of it is over, and a push that starts then must end, and be recorded, within the rest."
        )
    check_tls(environment)
    backend = backend_of(environment)
    return Settings(environment, backend, given_secrets(environment, backend))


def _from_files(environment: Environment) -> dict[str, str]:
    """The values from files, without the final line break that editors add."""
    values = {}
    for name in _IN_FILES:
        file: Path | None = getattr(environment, f"{name}_file")
        if file is None:
            continue
        if getattr(environment, name) is not None:
            raise BadSettings(f"{variable(name)} and {variable(name)}_FILE are both set: which of them is meant?")
        try:
            values[name] = file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise BadSettings(f"{variable(name)}_FILE: {file} cannot be read: {why}") from None
        if not values[name] and name != _MAY_BE_EMPTY:
            raise BadSettings(f"{variable(name)}_FILE: {file} is empty")
    return values


def _refuse_unknown(names: Iterable[str]) -> None:
    """Rejects unknown names: a misspelt variable would be ignored, and what it should protect would be left open."""
    known = {f"{PREFIX}{name.upper()}" for name in Environment.model_fields} | _NO_SETTINGS
    ours = {name for name in names if name.upper().startswith(PREFIX)}
    unknown = sorted(name for name in ours if name.upper() not in known and not name.upper().startswith(_OF_THE_TESTS))
    if unknown:
        raise BadSettings("\n".join(_unknown(name, known) for name in unknown))


def _unknown(name: str, known: Iterable[str]) -> str:
    short = [each.removeprefix(PREFIX) for each in known]
    nearest = get_close_matches(name.upper().removeprefix(PREFIX), short, n=1)
    hint = f"Did you mean {PREFIX}{nearest[0]}?" if nearest else "docs/reference/settings.md lists those there are."
    return f"{name} is no setting. {hint}"


def _in_words(error: ValidationError) -> list[str]:
    return [
        f"FORWARDER_{'_'.join(str(step) for step in detail['loc'][:1]).upper()}: {detail['msg']}"
        for detail in error.errors(include_input=False, include_url=False)
    ]
