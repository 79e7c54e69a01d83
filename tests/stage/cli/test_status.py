"""`forwarder status`: what it takes for unwell, in which order, and that one half is told although the other is away."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from forwarder.assembly.backend import open_backend
from forwarder.operate.deployment.status import (
    AccountStatus,
    DeploymentStatus,
    EndpointStatus,
    LogStatus,
    StoreStatus,
    open_status,
)
from forwarder.operate.deployment.status_page import lines_of, status_json
from forwarder.operate.output import Failed
from forwarder.oversight.backlog import AccountBacklog, AccountState, Group, GroupLag
from forwarder.settings import Environment, Settings, settings_of
from forwarder.store.engine import open_engine
from forwarder.store.lists.port import AccountWork, EndpointWork, NextTry
from forwarder.store.submissions.port import Heartbeat
from forwarder.tenancy.sealing import KnownSecret, Secret, SecretState
from forwarder.topics.port import Lag, TopicState
from tests.support.store.stored import NOBODY_LISTENS
from tests.support.worker.works import NOW, account

LONG_AGO = NOW - timedelta(hours=2)
SECRET = KnownSecret(Secret.from_text("a secret of a test").public_keys(), SecretState.ACTIVE, NOW, NOW)
WORKERS = Group("forwarder-worker", "reservations.requests")
LOG = LogStatus({"reservations.requests": TopicState(16, 3, 3)}, (), [GroupLag(WORKERS, [], NOW)], {WORKERS.name: 2})
STORE = StoreStatus(
    ["0001"], "0001", current=True, workers=[Heartbeat("w1", 3, 45.0)], secrets=[SECRET], sealing_keys=["key"]
)
WELL = DeploymentStatus(NOW, LOG, None, STORE, None)


def stands(name: str, work: AccountWork, state: AccountState, next_try: NextTry | None = None) -> AccountStatus:
    return AccountStatus(AccountBacklog(name, account(name), state, work, ()), next_try)


ACCOUNTS = [
    stands("doubtful", AccountWork("doubtful", 0, None, 0, None, 2, LONG_AGO), AccountState.ACTIVE),
    stands("paused", AccountWork("paused", 7, LONG_AGO, 0, None, 0, None), AccountState.PAUSED),
    stands(
        "failing",
        AccountWork("failing", 3, LONG_AGO, 0, None, 0, None),
        AccountState.ACTIVE,
        NextTry(NOW + timedelta(minutes=1), "pms_unreachable"),
    ),
    stands("left", AccountWork("left", 5, LONG_AGO, 5, LONG_AGO, 0, None), AccountState.ACTIVE),
    stands("busy", AccountWork("busy", 900, NOW, 20, NOW, 0, None), AccountState.ACTIVE),
]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (WELL, []),
        (replace(WELL, log=None, log_fault="no broker"), [("log is away: no broker", "outages")]),
        (replace(WELL, store=None, store_fault="no server"), [("store is away: no server", "outages")]),
        (replace(WELL, store=StoreStatus([], "0001", current=False)), [("at nothing", "forwarder migrate")]),
        (replace(WELL, log=replace(LOG, missing=["gone"])), [("gone", "forwarder topics create")]),
        (
            replace(WELL, log=replace(LOG, topics={"reservations.requests": TopicState(16, 3, 2)})),
            [("2 of 3 replicas", "broker")],
        ),
        (
            replace(WELL, log=replace(LOG, lags=[GroupLag(WORKERS, [Lag(0, 12, LONG_AGO)], NOW)])),
            [("12 messages and 7,200 s", "forwarder worker")],
        ),
        (
            replace(WELL, store=replace(STORE, accounts=ACCOUNTS, failed_by_class={"expired": 4})),
            [
                ("doubtful: 2 in doubt, the oldest for 2.0 h", "--status in_doubt --account doubtful"),
                ("paused: paused, and 7 wait", "account resume paused"),
                ("failing: 3 wait, pms_unreachable", "account probe failing"),
                ("left: 5 are due", "forwarder worker"),
                ("4 submissions are FAILED", "dead-letters replay --class expired"),
            ],
        ),
        (
            replace(
                WELL,
                store=replace(
                    STORE,
                    endpoints=[
                        EndpointStatus("whk_off", None, "failing"),
                        EndpointStatus("whk_late", EndpointWork("whk_late", 3, LONG_AGO), None),
                        EndpointStatus("whk_busy", EndpointWork("whk_busy", 3, NOW), None),
                    ],
                ),
            ),
            [("whk_off was disabled", "webhook enable whk_off"), ("whk_late: 3 deliveries", "forwarder notifier")],
        ),
        (replace(WELL, store=replace(STORE, sealing_keys=[])), [("no key is left", "worker")]),
    ],
)
def test_what_is_unwell_is_said_with_what_mends_it(found: DeploymentStatus, said: Sequence[tuple[str, str]]) -> None:
    assert len(found.findings) == len(said), found.findings
    for finding, (says, mend) in zip(found.findings, said, strict=True):
        assert says in finding.says
        assert mend in finding.mend
    assert status_json(found)["well"] is found.well is not bool(said)


async def test_groups_are_those_of_the_deployment(tmp_path: Path) -> None:
    """As its workers name them: with the prefix of its topics."""
    settings = settings_of(Environment(data_dir=tmp_path, topic_prefix="staging."))
    async with open_backend(settings) as backend:
        await backend.create_topics()
    async with open_status(settings) as reader:
        assert [each.name for each in reader.groups] == ["staging.forwarder-worker", "staging.forwarder-notifier"]
    behind = GroupLag(reader.groups[1], [Lag(0, 12, LONG_AGO)], NOW)
    (finding,) = replace(WELL, log=replace(LOG, lags=[behind])).findings
    assert finding.mend == "start more: forwarder notifier"


def test_a_terminals_page_has_forty_lines_at_most() -> None:
    many = [stands(f"acc-{number}", ACCOUNTS[1].backlog.work, AccountState.PAUSED) for number in range(100)]
    found = replace(WELL, store=replace(STORE, accounts=many))
    assert len(list(lines_of(found, findings=9, accounts=8))) <= 40
    assert len(list(lines_of(found))) > 200


def embedded(data_dir: Path) -> Settings:
    return settings_of(Environment(data_dir=data_dir))


async def test_a_new_deployment_is_told_of_and_one_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    settings = embedded(tmp_path / "data")
    with pytest.raises(Failed, match="set FORWARDER_DATA_DIR"):
        async with open_status(settings):
            pass
    assert not (tmp_path / "data").exists()
    async with open_backend(settings) as backend:
        await backend.create_topics()
    async with open_status(settings) as reader:
        found = await reader.read()
        assert found.well, found.findings
        assert any("kB on disk" in line or "MB on disk" in line for line, _ in lines_of(found))
        away = open_engine(NOBODY_LISTENS)
        broken = replace(reader, engine=away)
        half = await broken.read()
        await away.dispose()
    assert half.log is not None
    assert half.store is None
    assert "store is away" in half.findings[0].says
