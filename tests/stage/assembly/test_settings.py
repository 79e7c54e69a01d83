"""Settings: what the environment may say, and what is refused at the start."""

import socket
from pathlib import Path

import pytest

from forwarder.process.supervision import PROCESS_NUMBER
from forwarder.settings import BadSettings, Distributed, Embedded, Environment
from forwarder.settings.reading import read_settings
from forwarder.tenancy.port import RateLimit
from forwarder.webhooks.addresses import AddressRule

KAFKA = "FORWARDER_KAFKA_BOOTSTRAP_SERVERS"
DATABASE = "FORWARDER_DATABASE_URL"


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Environment.model_fields:
        monkeypatch.delenv(f"FORWARDER_{name.upper()}", raising=False)


def test_nothing_configured_is_embedded() -> None:
    assert read_settings().backend == Embedded(Path(".forwarder"))


def test_kafka_and_postgresql_together_are_distributed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KAFKA, "localhost:9092")
    monkeypatch.setenv(DATABASE, "postgresql://u:p@localhost/name")
    assert read_settings().backend == Distributed("localhost:9092", "postgresql://u:p@localhost/name")


@pytest.mark.parametrize(
    ("given", "value", "missing"), [(KAFKA, "localhost:9092", DATABASE), (DATABASE, "postgresql://x", KAFKA)]
)
def test_half_a_configuration_is_refused_and_the_other_half_named(
    monkeypatch: pytest.MonkeyPatch, given: str, value: str, missing: str
) -> None:
    monkeypatch.setenv(given, value)
    with pytest.raises(BadSettings, match=f"^{missing} is missing"):
        read_settings()


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("FORWARDER_SECRET_KEY", "short", "must have at least 32 characters"),
        ("FORWARDER_PUBLIC_URL", "https://a.example/", "is not written as docs/reference/settings.md says"),
        ("FORWARDER_LOG_LEVEL", "loud", "'debug', 'info', 'warning' or 'error'"),
        ("FORWARDER_LEASE_SECONDS", "inf", "less than or equal to 3600"),
        ("FORWARDER_GRACE_SECONDS", "inf", "less than or equal to 3600"),
        (KAFKA, "localhost:x", "must be host:port"),
        (KAFKA, "[::1", "must be host:port"),
        (KAFKA, ",", "must be host:port"),
        (DATABASE, "postgresql://u:p@localhost:x/name", "a port must be a number"),
        (DATABASE, "postgresql://u:p@localhost:5432,localhost:99999/name", "a port must be a number"),
    ],
)
def test_a_bad_value_is_refused_in_words_that_say_what_is_right(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    if name in {KAFKA, DATABASE}:
        monkeypatch.setenv(KAFKA, "localhost:9092")
        monkeypatch.setenv(DATABASE, "postgresql://u:p@localhost/name")
    monkeypatch.setenv(name, value)
    with pytest.raises(BadSettings, match=f"^{name}.*{says}"):
        read_settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FORWARDER_PORT", "eighty"),
        ("FORWARDER_PORT", "70000"),
        ("FORWARDER_SECRET_KEY", "no-more-than-thirty-one-letters"),
        ("FORWARDER_SECRET_KEY", "hunter2-hunter2-hunter2-hunter2-"),
        ("FORWARDER_SECRET_KEY", "x" * 64),
        ("FORWARDER_LOG_LEVEL", "loud"),
        ("FORWARDER_PARTITIONS", "0"),
        ("FORWARDER_RATE_LIMIT", "100 a minute"),
        ("FORWARDER_SIMULATOR_URL", "simulator:8085"),
        ("FORWARDER_SIMULATOR_URL", "http://simulator:8085/"),
        ("FORWARDER_LEASE_SECONDS", "44"),
    ],
)
def test_a_bad_value_is_refused_by_its_variables_name_and_not_quoted(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(BadSettings, match=name) as refused:
        read_settings()
    if name == "FORWARDER_SECRET_KEY":
        assert value not in str(refused.value)


@pytest.mark.parametrize(
    ("unknown", "nearest"),
    [
        ("FORWARDER_KAFKA_BOOTSTRAP_SERVER", "Did you mean FORWARDER_KAFKA_BOOTSTRAP_SERVERS?"),
        ("FORWARDER_SECRETKEY", "Did you mean FORWARDER_SECRET_KEY?"),
        ("FORWARDER_X", "docs/reference/settings.md"),
        ("forwarder_prot", "Did you mean FORWARDER_PORT?"),
    ],
)
def test_an_unknown_variable_is_refused_and_the_nearest_named(
    monkeypatch: pytest.MonkeyPatch, unknown: str, nearest: str
) -> None:
    monkeypatch.setenv(unknown, "a-value-that-may-be-a-secret")
    with pytest.raises(BadSettings, match=f"^{unknown} is no setting") as refused:
        read_settings()
    assert nearest in str(refused.value)
    assert "a-value-that-may-be-a-secret" not in str(refused.value)


def test_every_unknown_variable_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORWARDER_HOTS", "x")
    monkeypatch.setenv("FORWARDER_PROT", "x")
    with pytest.raises(BadSettings, match=r"FORWARDER_HOTS is no setting.*\nFORWARDER_PROT is no setting"):
        read_settings()


@pytest.mark.parametrize("name", ["FORWARDER_URL", "FORWARDER_TOKEN", "FORWARDER_WORKSPACE", "FORWARDER_TEST_KAFKA"])
def test_what_callers_and_tests_set_is_let_be(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "x")
    assert read_settings().backend == Embedded(Path(".forwarder"))


def test_a_prefix_sets_topics_and_group_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORWARDER_TOPIC_PREFIX", "staging.")
    settings = read_settings()
    assert settings.topics.requests == "staging.reservations.requests"
    assert settings.worker.group == "staging.forwarder-worker"
    assert settings.notifier.group == "staging.forwarder-notifier"


def test_webhooks_go_to_the_public_internet_unless_it_is_said_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_settings().webhook_addresses == AddressRule(loopback=True)
    monkeypatch.setenv(KAFKA, "localhost:9092")
    monkeypatch.setenv(DATABASE, "postgresql://u:p@localhost/name")
    assert read_settings().webhook_addresses == AddressRule()
    monkeypatch.setenv("FORWARDER_WEBHOOK_PRIVATE_ADDRESSES", "true")
    assert read_settings().webhook_addresses == AddressRule(private=True)


def test_keys_are_limited_where_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_settings().rate_limit is None
    monkeypatch.setenv("FORWARDER_RATE_LIMIT", "100/60s")
    assert read_settings().rate_limit == RateLimit(100, 60)


def test_another_database_than_postgresql_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KAFKA, "localhost:9092")
    monkeypatch.setenv(DATABASE, "mysql://x")
    with pytest.raises(BadSettings, match="PostgreSQL"):
        read_settings()


def test_the_token_of_metrics_is_long_and_may_be_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert read_settings().metrics_token is None
    file = tmp_path / "token"
    for written, refused in (("token-of-prometheus\n", False), ("too-short\n", True)):
        file.write_text(written)
        monkeypatch.setenv("FORWARDER_METRICS_TOKEN_FILE", str(file))
        if refused:
            with pytest.raises(BadSettings, match="FORWARDER_METRICS_TOKEN") as error:
                read_settings()
            assert "too-short" not in str(error.value)
        else:
            assert read_settings().metrics_token == "token-of-prometheus"


def test_processes_that_share_a_port_have_names_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_settings().member_name is None
    monkeypatch.setenv("FORWARDER_MEMBER_NAME", "{hostname}")
    assert read_settings().member_name == socket.gethostname()
    monkeypatch.setenv(PROCESS_NUMBER, "1")
    assert read_settings().member_name == f"{socket.gethostname()}-1"
    monkeypatch.setenv("FORWARDER_MEMBER_NAME", "of two words")
    with pytest.raises(BadSettings, match="FORWARDER_MEMBER_NAME"):
        read_settings()
