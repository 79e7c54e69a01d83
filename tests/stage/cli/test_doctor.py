"""`forwarder doctor`: each step of setting a deployment up, found out, and what to do."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from forwarder.assembly.backend import open_backend
from forwarder.operate.deployment.doctor import CheckedDeployment, Step, examine, open_doctor
from forwarder.operate.output import Failed
from forwarder.process.certificates import certificate_ends
from forwarder.settings import Embedded, Environment, Settings, settings_of
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy.port import Account, ApiKey, KnownKey, Workspace
from forwarder.tenancy.sealing import UnknownSecret
from forwarder.topics.port import Lag, LogUnavailable, Topics, TopicState
from tests.support.backends import missing
from tests.support.cases import for_each
from tests.support.memory.clock import ManualClock
from tools.servers.certificates import Authority
from tools.servers.ladder import Unavailable

SOUND = {
    "min.insync.replicas": "2",
    "cleanup.policy": "delete",
    "message.timestamp.type": "LogAppendTime",
    "retention.ms": "604800000",
}
NOW = datetime(2026, 7, 1, tzinfo=UTC)


class Broker:
    """A log with these topics and settings; away where there are none."""

    def __init__(
        self,
        state: TopicState | None = None,
        settings: Mapping[str, str] = SOUND,
        missing: str = "",
        unread_since: datetime = NOW,
    ) -> None:
        self._state = state or TopicState(8, 3, 3)
        self._unread_since = unread_since
        self._settings = settings
        self._missing = missing

    @asynccontextmanager
    async def admin(self) -> AsyncIterator["Broker"]:
        if not self._settings:
            raise LogUnavailable("nobody listens at broker:9092")
        yield self

    async def describe(self, topics: Collection[str]) -> Mapping[str, TopicState]:
        return {name: self._state for name in topics if name != self._missing}

    async def settings(self, _topic: str) -> Mapping[str, str]:
        return self._settings

    async def lag(self, _topic: str, *, group: str) -> Sequence[Lag]:
        return [Lag(0, 4, self._unread_since)] if group == "workers" else []

    async def retention(self, _topic: str) -> timedelta:
        return timedelta(milliseconds=int(self._settings["retention.ms"]))


class Callers:
    """Those that a deployment has; none at first."""

    def __init__(self, **there_are: Sequence[Any]) -> None:
        self._there_are = there_are

    async def workspaces(self) -> Sequence[Workspace]:
        return self._there_are.get("workspaces", ())

    async def keys(self) -> Sequence[KnownKey]:
        return self._there_are.get("keys", ())

    async def accounts(self) -> Sequence[Account]:
        return self._there_are.get("accounts", ())


def parts(broker: Broker | None = None, *, simulator: str | None = None, **changes: Any) -> CheckedDeployment:
    """Of a deployment in which all is well, but for `changes`."""
    settings = SimpleNamespace(
        backend=Embedded(Path("data")),
        topics=Topics(),
        worker=SimpleNamespace(group="workers"),
        notifier=SimpleNamespace(group="notifiers"),
        environment=SimpleNamespace(partitions=8, simulator_url=simulator),
    )
    sound = {
        "settings": settings,
        "log": broker or Broker(),
        "revisions": _answer((["0001"], True)),
        "overview": _database(),
        "admit": _answer("abc"),
        "certificates": dict[str, Path],
        "sealing_keys": _answer(["key-1"]),
        "tenancy": Callers(
            workspaces=[Workspace("acme", NOW, 1, 1, 0)],
            keys=[_key()],
            accounts=[Account("acc-1", "acme", "generic", "https://pms.example.com")],
        ),
        "clock": ManualClock(NOW),
    }
    return cast("CheckedDeployment", SimpleNamespace(**(sound | changes)))


def _database(time: Any = NOW, settings: Any = ({"fsync": "on", "full_page_writes": "on"}, 1)) -> Any:
    return SimpleNamespace(time=_answer(time), server_settings=_answer(settings))


def _key() -> KnownKey:
    return KnownKey(ApiKey("key-1", "acme"), NOW)


def _answer(value: Any) -> Any:
    async def answer(*_asked: object) -> Any:
        if isinstance(value, Exception):
            raise value
        return value

    return answer


async def found(broker: Broker | None = None, **changes: Any) -> list[Step]:
    """The steps that are not well."""
    return [step for step in await examine(parts(broker, **changes)) if step.verdict in {"failed", "warning"}]


async def test_messages_that_will_be_deleted_before_they_are_read_are_noticed_days_before() -> None:
    assert not await found(Broker(unread_since=NOW - timedelta(hours=41)))
    (step,) = await found(Broker(unread_since=NOW - timedelta(hours=43)))
    assert (step.name, step.verdict) == ("group workers", "failed")
    assert step.says == "has unread messages of 1.8 d; reservations.requests keeps messages for 7.0 d"
    assert (step.mend or "").startswith("the first are deleted in 5.2 d")


async def test_where_all_is_well_every_step_says_so() -> None:
    steps = await examine(parts())
    assert {step.verdict for step in steps} == {"ok", "not tried"}
    assert [step.name for step in steps if step.verdict == "not tried"] == ["simulator"]
    assert await found() == []


async def test_what_the_guarantees_assume_of_the_database_is_checked() -> None:
    (off,) = await found(overview=_database(settings=({"fsync": "off", "full_page_writes": "on"}, 1)))
    assert (off.verdict, off.mend) == ("failed", "set fsync = on in postgresql.conf, and restart PostgreSQL")
    assert "fsync is off" in off.says
    steps = await examine(parts(overview=_database(settings=({"fsync": "on"}, 0))))
    (standby,) = [step for step in steps if step.name == "database"]
    assert standby.verdict == "ok"
    assert "no synchronous standby" in standby.says


@for_each(
    ("broker", "verdict", "says", "mend"),
    [
        (Broker(missing="reservations.results"), "failed", "no reservations.results", "topics create"),
        (Broker(settings={}), "failed", "nobody listens", "address"),
        (Broker(TopicState(8, 3, 2)), "failed", "2 of 3", "brokers back"),
        (Broker(TopicState(4, 3, 3)), "warning", "4 partitions", "FORWARDER_PARTITIONS"),
        (Broker(TopicState(8, 1, 1)), "warning", "1 replicas", "brokers"),
        (Broker(settings={**SOUND, "min.insync.replicas": "1"}), "warning", "one replica", "min.insync.replicas=2"),
        (Broker(settings={**SOUND, "cleanup.policy": "compact"}), "failed", "compact", "cleanup.policy=delete"),
        (Broker(settings={**SOUND, "message.timestamp.type": "CreateTime"}), "warning", "senders'", "LogAppendTime"),
        (Broker(settings={**SOUND, "unclean.leader.election.enable": "true"}), "failed", "behind may become", "=false"),
        (
            Broker(settings={**SOUND, "compression.type": "zstd"}),
            "warning",
            "again with zstd",
            "compression.type=producer",
        ),
        (Broker(settings={**SOUND, "retention.ms": "3600000"}), "warning", "1 hours", "retention.ms"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)
async def test_what_is_wrong_with_the_log_is_told(broker: Broker, verdict: str, says: str, mend: str) -> None:
    step = (await found(broker))[0]
    assert step.verdict == verdict
    assert says in step.says
    assert mend in (step.mend or "")


@for_each(
    ("change", "name", "verdict", "mend"),
    [
        ({"revisions": _answer(([], False))}, "store", "failed", "forwarder migrate"),
        ({"revisions": _answer(StoreUnavailable("refused"))}, "store", "failed", "start it"),
        ({"overview": _database(NOW + timedelta(seconds=5))}, "clock", "warning", "NTP"),
        ({"overview": _database(NOW - timedelta(minutes=5))}, "clock", "failed", "NTP"),
        ({"admit": _answer(UnknownSecret("not of this deployment"))}, "secret", "failed", "secret status"),
        ({"sealing_keys": _answer([])}, "cards", "failed", "start a worker"),
        ({"tenancy": Callers()}, "callers", "warning", "workspace add"),
    ],
)
async def test_what_is_wrong_elsewhere_is_told(change: Any, name: str, verdict: str, mend: str) -> None:
    (step,) = await found(**change)
    assert (step.name, step.verdict) == (name, verdict)
    assert mend in (step.mend or "")


async def test_certificates_that_end_are_named_with_what_renews_them(tmp_path: Path) -> None:
    try:
        issued = Authority(tmp_path).issue("localhost", "DNS:localhost").certificate
    except Unavailable as reason:
        missing(reason)
    ends = certificate_ends(issued.read_text())
    lost = tmp_path / "lost.pem"

    def files() -> Mapping[str, Path]:
        return {"FORWARDER_TLS_CERTIFICATE_FILE": issued, "FORWARDER_KAFKA_CERTIFICATE_FILE": lost}

    for at, verdict, says in (
        (ends - timedelta(days=30), "ok", "ends on"),
        (ends - timedelta(days=13), "warning", "ends on"),
        (ends, "failed", "ended on"),
    ):
        clock = {"clock": ManualClock(at), "overview": _database(at)}
        steps = [each for each in await examine(parts(certificates=files, **clock)) if "certificate" in each.name]
        assert [(each.name, each.verdict) for each in steps] == [
            (f"certificate {issued}", verdict),
            (f"certificate {lost}", "failed"),
        ]
        assert steps[0].says == f"{says} {ends:%Y-%m-%d}"
        assert steps[1].mend == "correct FORWARDER_KAFKA_CERTIFICATE_FILE"


async def test_a_simulator_that_is_not_there_is_told() -> None:
    (step,) = await found(simulator="http://127.0.0.1:1")
    assert (step.name, step.verdict) == ("simulator", "failed")
    assert "forwarder simulate" in (step.mend or "")


def embedded(data_dir: Path) -> Settings:
    return settings_of(Environment(data_dir=data_dir))


async def test_a_new_deployment_is_sound_but_has_no_callers(tmp_path: Path) -> None:
    settings = embedded(tmp_path / "data")
    with pytest.raises(Failed, match="set FORWARDER_DATA_DIR"):
        async with open_doctor(settings):
            pass
    assert not (tmp_path / "data").exists()
    async with open_backend(settings) as backend:
        await backend.create_topics()
    async with open_doctor(settings) as opened:
        wrong = [step for step in await examine(opened) if step.verdict in {"failed", "warning"}]
    assert [(step.name, step.verdict) for step in wrong] == [("callers", "warning")]
