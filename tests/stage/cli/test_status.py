"""`forwarder status`, incident by incident: what it says word for word, in which order, and for which condition. It
shows one half when the other is away."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from forwarder.assembly.backend import open_backend
from forwarder.assembly.role import consuming_checks, store_checks
from forwarder.operate.deployment.conditions import Severity, conditions, findings_of
from forwarder.operate.deployment.status import (
    DeploymentStatus,
    EndpointStatus,
    LogStatus,
    StoreStatus,
    lines_of,
    open_status,
    status_json,
)
from forwarder.operate.output import Failed
from forwarder.oversight.backlog import AccountBacklog, AccountState, Backlog, Group, GroupLag
from forwarder.oversight.losses import LostMessages, TopicLost
from forwarder.settings import Environment, Settings, settings_of
from forwarder.store.deployment import RunningProcess
from forwarder.store.engine import open_engine
from forwarder.store.lists.port import AccountWork, EndpointWork, FailedWork, SetAsideMessages, Waiting
from forwarder.store.submissions.port import Heartbeat, ThrottleState
from forwarder.tenancy.sealing import KnownSecret, Secret, SecretState
from forwarder.topics.port import Lag, TopicState
from tests.support.cases import for_each
from tests.support.store.stored import NOBODY_LISTENS
from tests.support.worker.works import NOW, account

LONG_AGO = NOW - timedelta(hours=2)
MINUTES_AGO = NOW - timedelta(minutes=3)
SECRET = KnownSecret(Secret.from_text("a secret of a test").public_keys(), SecretState.ACTIVE, NOW, NOW)
WORKERS = Group("forwarder-worker", "reservations.requests")
LOG = LogStatus({"reservations.requests": TopicState(16, 3, 3)}, (), [GroupLag(WORKERS, [], NOW)], {WORKERS.name: 2})
STORE = StoreStatus(
    ["0001"], "0001", current=True, workers=[Heartbeat("w1", 3, 45.0)], secrets=[SECRET], sealing_keys=["key"]
)
WELL = DeploymentStatus(NOW, LOG, None, STORE, None)


def process(
    role: str, host: str, *failing: str, seen: Any = NOW, throttles: Sequence[ThrottleState] = ()
) -> RunningProcess:
    return RunningProcess(f"{role}-{host}", role, "1.2.3", "abc", host, LONG_AGO, seen, throttles, failing)


def open_at(worker: str, account_id: str, reason: str | None, wait: float | None) -> RunningProcess:
    """A worker whose breaker for the account is open."""
    return process("worker", worker, throttles=[ThrottleState(account_id, "open", reason, wait, 0, 8, 8, None, None)])


SERVING = [process("ingress", "i1"), process("query", "q1"), process("housekeeping", "h1")]
RUNNING = [*SERVING, process("worker", "w1"), process("worker", "w2")]


def stands(
    name: str,
    work: AccountWork,
    state: AccountState = AccountState.ACTIVE,
    waiting: Waiting | None = None,
) -> AccountBacklog:
    return AccountBacklog(name, account(name), state, work, (), waiting or Waiting())


def pending(name: str, count: int, *, since: Any = NOW, due: int = 0, due_at: Any = None) -> AccountWork:
    return AccountWork(name, count, since, due, due_at, 0, None)


def stored(*accounts: AccountBacklog, **more: Any) -> DeploymentStatus:
    return replace(WELL, store=replace(STORE, **({"accounts": accounts, "processes": RUNNING} | more)))


def backlog(*failed: FailedWork, **more: Any) -> Backlog:
    nothing = AccountWork("acme", 0, None, 0, None, 0, None)
    return Backlog([AccountBacklog("acme", None, AccountState.ACTIVE, nothing, failed)], (), NOW, **more)


def logged(**more: Any) -> DeploymentStatus:
    return replace(WELL, log=replace(LOG, **more))


PMS_FAILS = "acme: its PMS fails"
REFUSED = ", next try now; its PMS refuses the credential"
SOON = ", next try in 12 s"
WITHOUT_ANSWERS = " shows its answers; if there are none, start more"
IN_A_MINUTE = NOW + timedelta(minutes=1)
TIMED_OUT = Waiting(NOW - timedelta(seconds=5), {"push_timed_out": 990, "pms_unavailable": 4, None: 6})
INCIDENTS: Sequence[tuple[str, DeploymentStatus, Sequence[tuple[str, str, str]]]] = [
    ("nothing is wrong", WELL, []),
    ("two of each role run", stored(), []),
    (
        "Kafka is away",
        replace(WELL, log=None, log_fault="no broker"),
        [("LogAway", "the log is away: no broker", "see docs/operations/outages.md")],
    ),
    (
        "one process cannot reach Kafka",
        stored(processes=[*RUNNING, process("notifier", "n1", "log", "consuming")]),
        [
            ("LogAway", "the log is away: notifier on n1 cannot reach it", "see docs/operations/outages.md"),
        ],
    ),
    (
        "PostgreSQL is away",
        replace(WELL, store=None, store_fault="no server"),
        [("StoreAway", "the store is away: no server", "see docs/operations/outages.md")],
    ),
    (
        "PostgreSQL's disk is full, as status finds out itself",
        stored(write_fault="DiskFullError: could not extend file"),
        [
            (
                "StoreFull",
                "the store takes no writes: DiskFullError: could not extend file",
                "free space on PostgreSQL's disk: docs/operations/outages.md",
            )
        ],
    ),
    (
        "PostgreSQL's disk is full, as workers find out",
        stored(processes=[*SERVING, process("worker", "w1", "store_writes"), process("worker", "w2", "store_writes")]),
        [
            (
                "StoreFull",
                "the store takes no writes: worker on w1, worker on w2 failed to write in the last half minute",
                "free space on PostgreSQL's disk: docs/operations/outages.md",
            )
        ],
    ),
    (
        "the database is empty",
        replace(WELL, store=StoreStatus([], "0001", current=False)),
        [("TablesOutdated", "the tables are at nothing, this version needs 0001", "forwarder migrate")],
    ),
    (
        "a topic is gone",
        logged(missing=["reservations.results"]),
        [("TopicsMissing", "topics are missing: reservations.results", "forwarder topics create")],
    ),
    (
        "a broker is down",
        logged(topics={"reservations.requests": TopicState(16, 3, 2)}),
        [
            (
                "ReplicasBehind",
                "reservations.requests has 2 of 3 replicas in sync: a broker is away or behind",
                "start the broker again: docs/operations/outages.md",
            )
        ],
    ),
    (
        "workers are behind",
        logged(lags=[GroupLag(WORKERS, [Lag(0, 12, LONG_AGO)], NOW)]),
        [("Lag", "forwarder-worker is 12 messages and 7,200 s behind", "start more: forwarder worker")],
    ),
    (
        "workers have been behind for so long that messages will be deleted unread",
        logged(lags=[GroupLag(WORKERS, [Lag(0, 12, LONG_AGO)], NOW, timedelta(hours=7))]),
        [
            ("Lag", "forwarder-worker is 12 messages and 7,200 s behind", "start more: forwarder worker"),
            (
                "DeletionNears",
                (
                    "forwarder-worker has unread messages of 2.0 h, and reservations.requests keeps them for 7.0 h: "
                    "the first are deleted in 5.0 h"
                ),
                (
                    "keep them for longer: kafka-configs.sh --alter --entity-type topics --entity-name reservations.requests "
                    "--add-config retention.ms=100800000; then start more: forwarder worker"
                ),
            ),
        ],
    ),
    (
        "messages were lost before they were received",
        replace(
            WELL,
            lost=TopicLost(
                0, None, None, [LostMessages("reservations.requests", 3, 40, None, None, NOW, [])], unowned=2
            ),
        ),
        [
            (
                "MessagesLost",
                "reservations.requests: partition 3 lost 40 messages before they were received",
                "forwarder recover --topics-lost --dry-run says what may be lost; without --dry-run it accepts that",
            ),
            (
                "PartitionsRemoved",
                "2 due submissions of partitions that the requests topic no longer has",
                "start a worker, which moves them within half a minute: forwarder worker",
            ),
        ],
    ),
    (
        "the database was dropped and recreated",
        stored(processes=[*SERVING, process("worker", "w1", "keys_in_step_with_store", "consuming")]),
        [
            (
                "KeysReplaced",
                "the database was recreated and not restored: these processes have the keys of the previous one: worker on w1",
                "restore a backup: docs/operations/restore.md; if there is none, restart these processes",
            )
        ],
    ),
    (
        "the database was restored to an earlier state",
        stored(processes=[*SERVING, process("worker", "w1", "store_in_step_with_topics", "consuming")]),
        [
            (
                "OutOfStep",
                "the store lacks what the topics record: it was restored to an earlier state, and workers wait: worker on w1",
                "forwarder recover --from-snapshot --dry-run",
            )
        ],
    ),
    (
        "a worker does not read its topic, and another has just started",
        stored(
            processes=[
                *SERVING,
                process("worker", "w1", "consuming"),
                replace(process("worker", "w2", "consuming"), started_at=NOW),
            ]
        ),
        [
            (
                "IntakeStalled",
                "processes do not read their topic: worker on w1",
                "their logs say what they wait for: intake.stalled, intake.interrupted",
            )
        ],
    ),
    (
        "a worker cannot read a message",
        stored(processes=[*RUNNING[:4], process("worker", "w2", "topic_readable")]),
        [
            (
                "TopicUnreadable",
                "a message cannot be read, and its partition waits: worker on w2",
                "the log of that process has the remedy: partition.unreadable",
            )
        ],
    ),
    (
        "all workers were killed, and nobody started a query and housekeeping",
        stored(processes=[RUNNING[0], process("worker", "w1", seen=MINUTES_AGO)]),
        [
            (
                "NoWorker",
                "no worker runs: the last one, on w1, was killed or lost the store 3.0 min ago",
                "read the end of its log, then start it again: forwarder worker",
            ),
            (
                "NoQuery",
                "no query runs: none is registered",
                "read the end of its log, then start it again: forwarder query",
            ),
            (
                "BacklogUnknown",
                "no housekeeping runs: none is registered; the backlog is not reported to Prometheus, and old data is not removed",
                "read the end of its log, then start it again: forwarder housekeeping",
            ),
        ],
    ),
    (
        "one of two workers was killed",
        stored(processes=[*RUNNING[:4], process("worker", "w2", seen=MINUTES_AGO)]),
        [
            (
                "ProcessDown",
                "worker on w2 was killed or lost the store 3.0 min ago; 1 of its role run",
                "read the end of its log, then start it again: forwarder worker",
            )
        ],
    ),
    (
        "the only notifier was killed",
        stored(processes=[*RUNNING, process("notifier", "n1", seen=MINUTES_AGO)]),
        [
            (
                "ProcessDown",
                "notifier on n1 was killed or lost the store 3.0 min ago; 0 of its role run",
                "read the end of its log, then start it again: forwarder notifier",
            )
        ],
    ),
    (
        "a paused account whose name is no word of a shell",
        stored(stands("Casa Sol; 2", pending("Casa Sol; 2", 7, since=LONG_AGO), AccountState.PAUSED)),
        [("AccountPaused", "Casa Sol; 2: paused, and 7 wait", "forwarder account resume 'Casa Sol; 2'")],
    ),
    (
        "a loop of a worker fails, and a certificate is about to end",
        stored(processes=[*RUNNING[1:], process("ingress", "i1", "loops", "certificate")]),
        [
            (
                "LoopFails",
                "a loop keeps failing: ingress on i1",
                "the log of that process has the traceback: fault.contained",
            ),
            (
                "CertificateEnds",
                "a certificate of these processes expires within 14 days: ingress on i1",
                "forwarder doctor says which; renew it in place",
            ),
        ],
    ),
    (
        "the PMS hangs, and the breaker of both workers is open",
        stored(
            stands("acme", pending("acme", 1519, since=MINUTES_AGO, due=1519, due_at=MINUTES_AGO), waiting=TIMED_OUT),
            processes=[*SERVING, open_at("w1", "acme", "push_timed_out", 34.0), open_at("w2", "acme", None, 12.0)],
        ),
        [
            (
                "BreakerOpen",
                f"{PMS_FAILS} (push_timed_out), breaker open, 1,519 wait, 990 of the first 1,000 after push_timed_out{SOON}",
                "forwarder account probe acme",
            )
        ],
    ),
    (
        "the PMS answers 401 to everything",
        stored(
            stands("acme", pending("acme", 20), waiting=Waiting(None, {"pms_unauthorized": 10, None: 10})),
            processes=[*RUNNING[:4], open_at("w2", "acme", "pms_unauthorized", 0.0)],
        ),
        [
            (
                "BreakerOpen",
                f"{PMS_FAILS} (pms_unauthorized), breaker open, 20 wait, 10 of them after pms_unauthorized{REFUSED}",
                "forwarder account probe acme",
            )
        ],
    ),
    (
        "the PMS answers 500 to few submissions, too few to open the breaker",
        stored(
            stands("acme", pending("acme", 3), waiting=Waiting(IN_A_MINUTE, {"pms_failed": 2, None: 1})),
        ),
        [
            (
                "PushesFail",
                "acme: 3 wait, 2 of them after pms_failed, next try in 1.0 min",
                "forwarder account probe acme",
            )
        ],
    ),
    (
        "a few of many are tried again",
        stored(stands("acme", pending("acme", 300), waiting=Waiting(NOW, {"pms_failed": 2, None: 298}))),
        [],
    ),
    (
        "an account may do too little at a time",
        stored(
            stands("acme", pending("acme", 900, due=700, due_at=MINUTES_AGO)),
            processes=[
                *RUNNING[:4],
                process("worker", "w2", throttles=[ThrottleState("acme", "closed", None, 0.0, 2, 2, 2, None, None)]),
            ],
        ),
        [
            (
                "DueUnclaimed",
                "acme: 700 are due, the oldest for 3.0 min, and wait for a worker: 2 workers run, with 2 of 2 pushes under way",
                "start more: forwarder worker; or let the account do more at a time: forwarder account set acme --concurrency N",
            )
        ],
    ),
    (
        "a reservation has waited for two hours",
        stored(stands("acme", pending("acme", 5, since=LONG_AGO))),
        [
            (
                "OldestPending",
                "acme: the oldest of 5 pending has waited for 2.0 h",
                "forwarder account probe acme",
            )
        ],
    ),
    (
        "accounts that are in doubt, paused, or removed",
        stored(
            stands("doubtful", AccountWork("doubtful", 0, None, 0, None, 2, LONG_AGO)),
            stands("paused", pending("paused", 7, since=LONG_AGO), AccountState.PAUSED),
            stands("gone", pending("gone", 1), AccountState.UNKNOWN),
        ),
        [
            ("UnknownAccount", "gone: 1 wait for an account that does not exist", "forwarder account add --id …"),
            ("AccountPaused", "paused: paused, and 7 wait", "forwarder account resume paused"),
            (
                "InDoubt",
                "doubtful: 2 in doubt, the oldest for 2.0 h",
                "forwarder submissions list --status in_doubt --account doubtful",
            ),
        ],
    ),
    (
        "submissions of test keys fail in every way",
        stored(
            stands(
                "acme~test",
                AccountWork("acme~test", 9, LONG_AGO, 9, LONG_AGO, 4, LONG_AGO),
                AccountState.TEST,
                Waiting(NOW, {"pms_unavailable": 9}),
            ),
            processes=[*RUNNING[:4], open_at("w2", "acme~test", "pms_unavailable", 30.0)],
        ),
        [],
    ),
    (
        "forged and undecodable messages, and one that caused an internal error",
        stored(
            work=backlog(
                set_aside=[
                    SetAsideMessages("forged", 3, LONG_AGO, LONG_AGO),
                    SetAsideMessages("internal_error", 1, NOW, NOW),
                    SetAsideMessages("undecodable", 1200, LONG_AGO, MINUTES_AGO),
                ]
            )
        ),
        [
            (
                "ForgedMessages",
                "3 messages on the requests topic not signed by this deployment, set aside, the last 2.0 h ago",
                "forwarder dead-letters list --class forged; then forwarder dead-letters acknowledge forged",
            ),
            (
                "ContainedFaults",
                "1 message set aside because of internal errors, the last 0 s ago",
                "forwarder dead-letters list --class internal_error; then forwarder dead-letters acknowledge internal_error",
            ),
            (
                "UnreadableMessages",
                "1,200 messages on the requests topic could not be read, set aside, the last 3.0 min ago",
                "forwarder dead-letters list --class undecodable; then forwarder dead-letters acknowledge undecodable",
            ),
        ],
    ),
    (
        "dead letters, doubles and results that are late",
        stored(work=backlog(FailedWork("acme", "expired", 4)), doubles=1, unpublished=12),
        [
            (
                "Doubles",
                "1 reservation twice in the PMS",
                "forwarder doubles list; then forwarder doubles cancel",
            ),
            (
                "UnpublishedResults",
                "12 outcomes recorded and not on the results topic",
                "if Kafka is well, look for result.set_aside in the workers' logs",
            ),
            (
                "DeadLetters",
                "4 submissions FAILED, expired",
                "forwarder dead-letters replay --class expired --dry-run",
            ),
        ],
    ),
    (
        "webhooks that are late or disabled",
        stored(
            endpoints=[
                EndpointStatus("whk_off", None, "failing"),
                EndpointStatus("whk_late", EndpointWork("whk_late", 3, LONG_AGO), None),
                EndpointStatus("whk_busy", EndpointWork("whk_busy", 3, NOW), None),
            ]
        ),
        [
            (
                "WebhookBehind",
                "webhook whk_late: 3 deliveries waiting, the first due for 2.0 h",
                f"forwarder webhook deliveries whk_late --tried{WITHOUT_ANSWERS}: forwarder notifier",
            ),
            (
                "WebhookDisabled",
                "webhook whk_off was disabled: failing",
                "forwarder webhook deliveries whk_off; forwarder webhook enable whk_off",
            ),
        ],
    ),
    (
        "cards cannot be sealed, and API keys end",
        stored(
            sealing_keys=[],
            work=backlog(keys_ending=2, certificates_ending=[f"a{number}" for number in range(1, 8)]),
        ),
        [
            (
                "NoSealingKey",
                "no key is left to seal cards to",
                "start a worker, which makes them: forwarder worker",
            ),
            (
                "PmsCertificatesEnding",
                "the client certificates of a1, a2, a3, a4, a5 and 2 more for their PMSs expire within 14 days",
                "forwarder account set ACCOUNT --certificate-file … --key-file …",
            ),
            (
                "KeysEnding",
                "2 API keys expiring within 14 days",
                "forwarder key list; then forwarder key change KEY --expires …",
            ),
        ],
    ),
    (
        "no secret is known",
        stored(secrets=[], sealing_keys=[]),
        [("NoSecret", "no secret is known: nothing can be sealed", "forwarder migrate")],
    ),
]


@for_each(("found", "said"), [each[1:] for each in INCIDENTS], ids=[each[0] for each in INCIDENTS])
def test_each_incident_is_said_with_what_mends_it(
    found: DeploymentStatus, said: Sequence[tuple[str, str, str]]
) -> None:
    assert [(each.condition.name, each.says, each.mend) for each in findings_of(found)] == [*said]
    assert status_json(found)["well"] is not bool(said)
    assert next(lines_of(found))[0].startswith("DEGRADED" if said else "OK")


@for_each("check", sorted({each.check for each in conditions() if each.check}))
def test_a_process_that_fails_a_check_leaves_the_status_to_be_read(check: str) -> None:
    found = stored(processes=[*RUNNING, process("worker", "w3", check)])
    said = [each.condition.check for each in findings_of(found)]
    # The loss itself is seen on the log, which says how much there was.
    assert said == ([] if check == "topics_in_step_with_store" else [check])
    assert next(lines_of(found))[0].startswith("DEGRADED" if said else "OK")


def test_each_condition_that_a_status_can_show_has_its_incident() -> None:
    shown = {name for _, _, said in INCIDENTS for name, _, _ in said}
    assert shown == {each.name for each in conditions() if not each.status_lacks} - {"NoIngress"}


def test_each_condition_has_a_line_in_the_status_and_an_alert_or_says_why_not() -> None:
    for each in conditions():
        assert bool(each.status_lacks) == (each.says == "" == each.do), each.name
        assert (each.expr == "") == bool(each.alert_lacks), each.name
        assert (each.expr == "") == (each.summary == ""), each.name
        assert each.expr or not each.status_lacks, each.name


async def test_each_readiness_check_belongs_to_a_condition(data_dir: Path) -> None:
    stage: Any = SimpleNamespace(consuming=bool, unreadable={})
    async with open_backend(settings_of(Environment(data_dir=data_dir))) as backend:
        named = {*consuming_checks(stage), *store_checks(backend), "log", "loops", "certificate"}
    in_step = {"store_in_step_with_topics", "topics_in_step_with_store"}
    assert {each.check for each in conditions() if each.check} == named | in_step


def test_what_is_urgent_comes_first() -> None:
    found = stored(work=backlog(FailedWork("acme", "expired", 4), keys_ending=1), write_fault="full")
    assert [each.condition.severity for each in findings_of(found)] == [Severity.PAGE, Severity.TICKET, Severity.TICKET]


async def test_groups_are_those_of_the_deployment(data_dir: Path) -> None:
    """As its workers name them: with the prefix of its topics."""
    settings = settings_of(Environment(data_dir=data_dir, topic_prefix="staging."))
    async with open_backend(settings) as backend:
        await backend.create_topics()
    async with open_status(settings) as reader:
        found = (await reader.read()).log
    assert found is not None
    assert [*found.members] == ["staging.forwarder-worker", "staging.forwarder-notifier"]
    behind = GroupLag(found.lags[1].group, [Lag(0, 12, LONG_AGO)], NOW)
    (finding,) = findings_of(logged(lags=[behind]))
    assert finding.mend == "start more: forwarder notifier"


def test_a_terminals_page_has_forty_lines_at_most() -> None:
    many = [stands(f"acc-{number}", pending("acc", 7), AccountState.PAUSED) for number in range(100)]
    found = stored(*many)
    assert len(list(lines_of(found, at_most=8))) <= 40
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
        assert not findings_of(found)
        assert any("kB on disk" in line or "MB on disk" in line for line, _ in lines_of(found))
        away = open_engine(NOBODY_LISTENS)
        broken = replace(reader, engine=away)
        half = await broken.read()
        await away.dispose()
    assert half.log is not None
    assert half.store is None
    assert "store is away" in findings_of(half)[0].says
