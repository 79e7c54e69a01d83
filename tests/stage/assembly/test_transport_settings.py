"""How Kafka and PostgreSQL are reached: what goes together, where secrets are read from, and no plaintext to elsewhere."""

from pathlib import Path

import pytest

from forwarder.http.connections import TlsFiles
from forwarder.settings import BadSettings, Distributed
from forwarder.settings.reading import read_settings
from forwarder.topics.kafka.security import KafkaSecurity, OAuthClient
from tests.support.backends import missing
from tools.servers.certificates import Authority, Certificate
from tools.servers.ladder import Unavailable

AWAY = "postgresql://u:p-of-db@db.example/name"
SASL = {"SECURITY_PROTOCOL": "SASL_PLAINTEXT", "SASL_MECHANISM": "PLAIN"}
TOKEN = {"SASL_OAUTH_TOKEN_URL": "https://id.example/token", "SASL_OAUTH_CLIENT_ID": "us"}


@pytest.fixture(autouse=True)
def _at_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Both on this machine; no certificates in the home directory."""
    for name in ("PGHOST", "PGSSLMODE", "PGSSLROOTCERT", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    given(monkeypatch, KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:9092,[::1]:9092", DATABASE_URL="postgresql://u:p@localhost/n")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    try:
        return Authority(tmp_path / "certificates")
    except Unavailable as reason:
        missing(reason)


def given(monkeypatch: pytest.MonkeyPatch, **variables: object) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"FORWARDER_{name}", str(value))


def kafka(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    given(monkeypatch, **{f"KAFKA_{name}": value for name, value in variables.items()})


def security() -> KafkaSecurity | None:
    backend = read_settings().backend
    assert isinstance(backend, Distributed)
    return backend.kafka_security


def refused() -> str:
    with pytest.raises(BadSettings) as error:
        read_settings()
    assert "p-of-" not in str(error.value)
    return str(error.value)


def test_plaintext_on_this_machine_needs_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    assert security() is None


def test_scram_over_tls(monkeypatch: pytest.MonkeyPatch, authority: Authority) -> None:
    kafka(monkeypatch, {"SECURITY_PROTOCOL": "SASL_SSL", "SASL_MECHANISM": "SCRAM-SHA-512", "SASL_USERNAME": "us"})
    kafka(monkeypatch, {"SASL_PASSWORD": "p-of-kafka", "CA_FILE": str(authority.file)})
    assert security() == KafkaSecurity("SASL_SSL", "SCRAM-SHA-512", "us", "p-of-kafka", ca_file=authority.file)
    assert "p-of-kafka" not in repr(read_settings())


def test_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka(monkeypatch, {"SECURITY_PROTOCOL": "SASL_SSL", "SASL_MECHANISM": "OAUTHBEARER", **TOKEN})
    kafka(monkeypatch, {"SASL_OAUTH_CLIENT_SECRET": "p-of-us", "SASL_OAUTH_SCOPE": "kafka"})
    client = OAuthClient("https://id.example/token", "us", "p-of-us", "kafka")
    assert security() == KafkaSecurity("SASL_SSL", "OAUTHBEARER", oauth=client)
    kafka(monkeypatch, {"SASL_OAUTH_TOKEN_URL": "http://id.example/token"})
    assert refused() == "FORWARDER_KAFKA_SASL_OAUTH_TOKEN_URL must be https: the client's secret is sent there."


def test_a_token_from_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka(monkeypatch, {"SECURITY_PROTOCOL": "SASL_SSL", "SASL_MECHANISM": "OAUTHBEARER"})
    kafka(monkeypatch, {"SASL_OAUTH_TOKEN_FILE": "/run/token"})
    assert security() == KafkaSecurity("SASL_SSL", "OAUTHBEARER", oauth=Path("/run/token"))
    kafka(monkeypatch, TOKEN)
    assert "SASL_OAUTH_CLIENT_ID and FORWARDER_KAFKA_SASL_OAUTH_TOKEN_URL would have no effect, because" in refused()


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"SECURITY_PROTOCOL": "SASL_SSL"}, "SASL_MECHANISM must be set, because"),
        (SASL, "SASL_PASSWORD and FORWARDER_KAFKA_SASL_USERNAME must be set, because"),
        (SASL | {"SASL_USERNAME": "us"}, "FORWARDER_KAFKA_SASL_PASSWORD must be set, because"),
        (SASL | {"SASL_MECHANISM": "OAUTHBEARER"} | TOKEN, "SASL_OAUTH_CLIENT_SECRET must be set, because"),
        ({"SECURITY_PROTOCOL": "SSL", "KEY_FILE": "key.pem"}, "FORWARDER_KAFKA_CERTIFICATE_FILE must be set"),
        ({"SECURITY_PROTOCOL": "SSL", "CERTIFICATE_FILE": "us.pem"}, "FORWARDER_KAFKA_KEY_FILE must be set"),
        ({"SASL_PASSWORD": "p-of-kafka"}, "SASL_PASSWORD would have no effect, because FORWARDER_KAFKA_SECURITY_PROTOCOL is PLAIN"),
        (SASL | {"SASL_USERNAME": "u", "SASL_PASSWORD": "p-of-kafka", "CA_FILE": "ca.pem"}, "CA_FILE would have no effect"),
        ({"SECURITY_PROTOCOL": "SSL", "CA_FILE": "ca.pem"}, "FORWARDER_KAFKA_CA_FILE=ca.pem cannot be used: No such file"),
        ({"SECURITY_PROTOCOL": "TLS"}, "FORWARDER_KAFKA_SECURITY_PROTOCOL: Input should be 'PLAINTEXT', 'SSL'"),
        ({"SASL_MECHANISM": "GSSAPI"}, "FORWARDER_KAFKA_SASL_MECHANISM: Input should be 'PLAIN', 'SCRAM-SHA-256'"),
    ],
)  # fmt: skip
def test_half_a_configuration_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], said: str
) -> None:
    kafka(monkeypatch, variables)
    assert said in refused()


def test_https_has_a_certificate_with_its_key(monkeypatch: pytest.MonkeyPatch, authority: Authority) -> None:
    assert read_settings().tls is None
    ours, other = authority.issue("ours", "DNS:localhost"), authority.issue("other")
    given(monkeypatch, TLS_CERTIFICATE_FILE=ours.certificate)
    assert refused().startswith("FORWARDER_TLS_KEY_FILE must be set, because FORWARDER_TLS_CERTIFICATE_FILE=")
    given(monkeypatch, TLS_KEY_FILE=other.key)
    assert "KEY_VALUES_MISMATCH" in refused()
    given(monkeypatch, TLS_KEY_FILE=ours.key, TLS_CLIENT_CA_FILE=authority.file)
    assert read_settings().tls == TlsFiles(ours.certificate, ours.key, authority.file)
    given(monkeypatch, TLS_CLIENT_CA_FILE="none.pem")
    assert "FORWARDER_TLS_CLIENT_CA_FILE=none.pem cannot be used: No such file" in refused()


def test_security_without_brokers_is_half_a_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KAFKA_BOOTSTRAP_SERVERS", "DATABASE_URL"):
        monkeypatch.delenv(f"FORWARDER_{name}")
    kafka(monkeypatch, {"SECURITY_PROTOCOL": "SSL", "CA_FILE": "ca.pem"})
    assert "because FORWARDER_KAFKA_BOOTSTRAP_SERVERS is missing" in refused()


def test_a_key_of_another_certificate_is_refused(monkeypatch: pytest.MonkeyPatch, authority: Authority) -> None:
    ours, other = authority.issue("ours"), authority.issue("other")
    kafka(
        monkeypatch, {"SECURITY_PROTOCOL": "SSL", "CERTIFICATE_FILE": str(ours.certificate), "KEY_FILE": str(other.key)}
    )
    assert f"FORWARDER_KAFKA_KEY_FILE={other.key} cannot be used" in refused()


@pytest.mark.parametrize("name", ["SECRET_KEY", "DATABASE_URL", "KAFKA_SASL_PASSWORD"])
def test_a_secret_is_read_from_a_file_or_given_and_never_both(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    kafka(monkeypatch, SASL | {"SASL_USERNAME": "us", "SASL_PASSWORD": "p-of-kafka"})
    given(monkeypatch, SECRET_KEY="p-of-everything-that-is-sealed-here")
    value, file = "postgresql://u:p-of-@localhost/other", tmp_path / "secret"
    file.write_text(f"{value}\n")
    given(monkeypatch, **{f"{name}_FILE": file})
    assert refused() == f"FORWARDER_{name} and FORWARDER_{name}_FILE are both set: which of them is meant?"
    monkeypatch.delenv(f"FORWARDER_{name}")
    settings = read_settings()
    assert isinstance(settings.backend, Distributed)
    assert settings.backend.kafka_security is not None
    assert value in {settings.secrets.present, settings.backend.database_url, settings.backend.kafka_security.password}
    file.write_text("\n")
    assert refused() == f"FORWARDER_{name}_FILE: {file} is empty"
    file.unlink()
    assert refused() == f"FORWARDER_{name}_FILE: {file} cannot be read: No such file or directory"


def test_the_databases_password_may_be_in_a_file_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("p-of-/@:%\n")
    given(monkeypatch, DATABASE_URL="postgresql://us@localhost:5432/n?application_name=x", DATABASE_PASSWORD_FILE=file)
    backend = read_settings().backend
    assert isinstance(backend, Distributed)
    assert backend.database_url == "postgresql://us:p-of-%2F%40%3A%25@localhost:5432/n?application_name=x"
    given(monkeypatch, DATABASE_URL="postgresql://us:p-of-url@localhost/n")
    assert "FORWARDER_DATABASE_URL has a password of its own" in refused()
    given(monkeypatch, DATABASE_URL="postgresql://localhost/n")
    assert "FORWARDER_DATABASE_URL names no user" in refused()
    monkeypatch.delenv("FORWARDER_DATABASE_URL")
    assert "FORWARDER_DATABASE_URL is missing" in refused()


def test_there_need_be_no_earlier_secret_in_its_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "earlier"
    file.write_text("")
    given(monkeypatch, SECRET_KEY="p-of-everything-that-is-sealed-here", EARLIER_SECRET_KEYS_FILE=file)
    assert read_settings().secrets.earlier == []
    file.write_text("p-of-everything-before\n")
    assert read_settings().secrets.earlier == ["p-of-everything-before"]


@pytest.mark.parametrize(
    "servers", ["kafka:9092", "127.0.0.1:9092,10.0.0.7:9092", "localhost.example:9092", "[::2]:9092"]
)
@pytest.mark.parametrize("protocol", [{}, SASL | {"SASL_USERNAME": "us", "SASL_PASSWORD": "p-of-kafka"}])
def test_plaintext_to_other_brokers_is_refused_unless_allowed(
    monkeypatch: pytest.MonkeyPatch, servers: str, protocol: dict[str, str]
) -> None:
    kafka(monkeypatch, protocol | {"BOOTSTRAP_SERVERS": servers})
    assert "would be reached in plaintext: set FORWARDER_KAFKA_SECURITY_PROTOCOL to SASL_SSL or SSL" in refused()
    given(monkeypatch, ALLOW_PLAINTEXT="true")
    read_settings()
    monkeypatch.delenv("FORWARDER_ALLOW_PLAINTEXT")
    for name in protocol:
        monkeypatch.delenv(f"FORWARDER_KAFKA_{name}")
    kafka(monkeypatch, {"SECURITY_PROTOCOL": "SSL"})
    read_settings()


@pytest.mark.parametrize("mode", ["", "?sslmode=disable", "?sslmode=allow", "?sslmode=prefer", "?application_name=x"])
def test_plaintext_to_another_database_is_refused_unless_allowed(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    given(monkeypatch, DATABASE_URL=AWAY + mode)
    assert "PostgreSQL at db.example would be reached in plaintext: add ?sslmode=verify-full&sslrootcert=" in refused()
    given(monkeypatch, ALLOW_PLAINTEXT="true")
    read_settings()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u@10.0.0.7/n",
        "postgresql://u@localhost,db.example/n",
        "postgresql://u@/n?host=db.example",
        "postgresql://u@/n?service=away",
    ],
)
def test_wherever_the_url_says_that_the_database_is_elsewhere(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    given(monkeypatch, DATABASE_URL=url)
    assert "would be reached in plaintext" in refused()


def test_a_list_with_an_address_that_python_may_not_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some versions do, some say that it is no address of IPv6."""
    given(monkeypatch, DATABASE_URL="postgresql://u@localhost:5432,[::2]:5432/n")
    assert "DATABASE_URL" in refused() or "plaintext" in refused()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u@/n",
        "postgresql://u@/n?host=/run/postgresql",
        "postgresql://u@%2Frun%2Fpostgresql/n",
        "postgresql://u@127.3.2.1/n",
        "postgresql://u@[::1]:5432,localhost/n",
        "postgresql+asyncpg://u@db.example/n?sslmode=require",
    ],
)
def test_this_machine_and_what_is_encrypted_are_let_be(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    given(monkeypatch, DATABASE_URL=url)
    read_settings()


def test_libpqs_variables_count(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, DATABASE_URL="postgresql://u@/n")
    monkeypatch.setenv("PGHOST", "db.example")
    assert "would be reached in plaintext" in refused()
    monkeypatch.setenv("PGSSLMODE", "require")
    read_settings()


@pytest.fixture
def ours(authority: Authority) -> Certificate:
    return authority.issue("ours")


def test_files_of_the_database_url_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, authority: Authority, ours: Certificate
) -> None:
    whole = f"{AWAY}?sslmode=verify-full&sslrootcert={authority.file}&sslcert={ours.certificate}&sslkey={ours.key}"
    for url, said in {
        f"{AWAY}?sslmode=verify-full": "need sslrootcert=, the file of the authority to trust",
        f"{AWAY}?sslmode=verify-full&sslrootcert=ca.pem": "sslrootcert=ca.pem cannot be used: No such file or directory",
        whole.replace(f"&sslkey={ours.key}", ""): "sslkey is missing",
        whole.replace(f"&sslcert={ours.certificate}", ""): "sslcert is missing",
        whole.replace(str(ours.key), str(authority.own.key)): f"sslkey={authority.own.key} cannot be used",
        f"{AWAY}?sslmode=full": "sslmode must be one of disable, allow, prefer, require, verify-ca, verify-full",
    }.items():
        given(monkeypatch, DATABASE_URL=url)
        assert said in refused()
    given(monkeypatch, DATABASE_URL=whole)
    read_settings()
