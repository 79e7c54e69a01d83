"""The Kafka connection: which variables belong together."""

from typing import Final
from urllib.parse import urlsplit

from forwarder.process.addresses import is_local
from forwarder.settings.environment import BadSettings, Environment, secret, variable
from forwarder.topics.kafka.security import KafkaSecurity, OAuthClient

_TLS: Final = {"kafka_ca_file", "kafka_certificate_file", "kafka_key_file"}
_PASSWORD: Final = {"kafka_sasl_username", "kafka_sasl_password"}
_TOKEN: Final = {"kafka_sasl_oauth_token_url", "kafka_sasl_oauth_client_id", "kafka_sasl_oauth_client_secret"}
_TOKEN_FILE: Final = "kafka_sasl_oauth_token_file"  # noqa: S105 - its name
_SECURITY: Final = {*_TLS, *_PASSWORD, *_TOKEN, _TOKEN_FILE, "kafka_sasl_mechanism", "kafka_sasl_oauth_scope"}


def kafka_security(environment: Environment) -> KafkaSecurity | None:
    """The security settings for the brokers; None for plaintext. Raises `BadSettings` for contradictory variables."""
    protocol, mechanism = environment.kafka_security_protocol, environment.kafka_sasl_mechanism
    token_file = environment.kafka_sasl_oauth_token_file
    secured, authenticated = protocol.endswith("SSL"), protocol.startswith("SASL")
    needed = {"kafka_sasl_mechanism"} if authenticated else set()
    if authenticated and mechanism is not None:
        needed |= _PASSWORD if mechanism != "OAUTHBEARER" else _TOKEN if token_file is None else {_TOKEN_FILE}
    for one, other in (("kafka_certificate_file", "kafka_key_file"), ("kafka_key_file", "kafka_certificate_file")):
        needed |= {other} if secured and getattr(environment, one) is not None else set()
    said = f"FORWARDER_KAFKA_SECURITY_PROTOCOL is {protocol}"
    said += f" and FORWARDER_KAFKA_SASL_MECHANISM {mechanism}" if mechanism else ""
    said += f" and {variable(_TOKEN_FILE)} is set" if token_file else ""
    missing = sorted(variable(name) for name in needed if getattr(environment, name) is None)
    if missing:
        raise BadSettings(f"{' and '.join(missing)} must be set, because {said}.")
    optional = (_TLS if secured else set()) | ({"kafka_sasl_oauth_scope"} if needed >= _TOKEN else set())
    refuse_superfluous(environment, needed | optional, said)
    if protocol == "PLAINTEXT":
        return None
    security = KafkaSecurity(
        protocol=protocol,
        mechanism=mechanism,
        username=environment.kafka_sasl_username,
        password=secret(environment.kafka_sasl_password),
        oauth=token_file or _oauth_client(environment),
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


def _oauth_client(environment: Environment) -> OAuthClient | None:
    url, client = environment.kafka_sasl_oauth_token_url, environment.kafka_sasl_oauth_client_id
    password = secret(environment.kafka_sasl_oauth_client_secret)
    if url is None or client is None or password is None:
        return None
    if url.startswith("http://") and not environment.allow_plaintext and not is_local(urlsplit(url).hostname or url):
        raise BadSettings("FORWARDER_KAFKA_SASL_OAUTH_TOKEN_URL must be https: the client's secret is sent there.")
    return OAuthClient(url, client, password, environment.kafka_sasl_oauth_scope)


def refuse_superfluous(environment: Environment, usable: set[str], said: str) -> None:
    """Rejects variables that would be ignored: the operator who set them expected an effect."""
    given = {name for name in _SECURITY if getattr(environment, name) is not None}
    superfluous = sorted(variable(name) for name in given - usable)
    if superfluous:
        raise BadSettings(f"{' and '.join(superfluous)} would have no effect, because {said}.")
