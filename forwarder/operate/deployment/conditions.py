"""The conditions that operators act on: the list in conditions.toml, and how each is seen in a snapshot of the deployment.

`forwarder status` and the console's overview show `findings_of` a snapshot. The Prometheus rules and docs/operations/alerts.md are
made from the same list.
"""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from forwarder.operate.deployment.throughput import pms_states
from forwarder.oversight.backlog import AccountState, Group
from forwarder.process.printable import printable
from forwarder.reservation.failures import FORGED, INTERNAL_ERROR, UNDECODABLE
from forwarder.store.deployment import RunningProcess
from forwarder.tenancy.sealing import SecretState

if TYPE_CHECKING:
    from forwarder.operate.deployment.status import AccountStatus, DeploymentStatus

LATE: Final = timedelta(minutes=1)
"""Lag, or a due and untouched row, older than this is reported."""
OLD: Final = timedelta(minutes=30)
"""A submission that is pending for longer is reported."""
_EVERYTHING: Final = "up"
"""The role of a process with all stages."""

Fields = Mapping[str, Any]
Seen = Callable[["DeploymentStatus"], Iterable[Fields]]
"""The cases of a condition in a snapshot: for each, the values of its texts."""


class Severity(StrEnum):
    """How soon somebody must look: at once, or in the morning."""

    PAGE = "page"
    TICKET = "ticket"


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that can be wrong, as conditions.toml describes it. `expr` is empty without an alert. `seen`: None if no snapshot
    shows it."""

    name: str
    group: str
    severity: Severity
    seen: Seen | None = None
    says: str = ""
    do: str = ""
    page: str = ""
    check: str = ""
    expr: str = ""
    after: str = ""
    summary: str = ""
    status_lacks: str = ""
    alert_lacks: str = ""

    @property
    def runbook(self) -> str:
        """The section that says what it means and what to do."""
        anchor = f"forwarder{self.name.lower()}" if self.expr else "shown-by-status-alone"
        return f"docs/operations/alerts.md#{anchor}"


@cache
def conditions() -> Sequence[Condition]:
    """The list."""
    text = files("forwarder.operate.deployment").joinpath("conditions.toml").read_text(encoding="utf-8")
    return [
        Condition(name, **given | {"severity": Severity(given["severity"]), "seen": _seen(name, given.get("check"))})
        for name, given in tomllib.loads(text).items()
    ]


def _seen(name: str, check: str | None) -> Seen | None:
    return _SEEN.get(name) or (None if check is None else _failing(check))


@dataclass(frozen=True, slots=True)
class Finding:
    """A case of a condition: what is wrong, and the remedy, usually a command. `page`: of the console; empty if none shows it."""

    condition: Condition
    says: str
    mend: str
    page: str = ""

    @property
    def urgent(self) -> bool:
        return self.condition.severity is Severity.PAGE


def findings_of(status: "DeploymentStatus") -> Sequence[Finding]:
    """What is wrong, most urgent first, then in the order of the list."""
    every = [finding for condition in conditions() for finding in _cases(condition, status)]
    return sorted(every, key=lambda finding: not finding.urgent)


def _cases(condition: Condition, status: "DeploymentStatus") -> Iterator[Finding]:
    for values in condition.seen(status) if condition.seen is not None else ():
        quoted = {name: quote(str(value), safe="") for name, value in values.items()}
        says, mend = (printable(text.format_map(values)) for text in (condition.says, condition.do))
        yield Finding(condition, says, mend, condition.page.format_map(quoted))


# --- what a snapshot shows --------------------------------------------------------------------------------------------------


def _log_away(status: "DeploymentStatus") -> Iterator[Fields]:
    if status.log_fault is not None:
        yield {"fault": status.log_fault}
    else:
        yield from _failing("log", "{where} cannot reach it")(status)


def _store_away(status: "DeploymentStatus") -> Iterator[Fields]:
    if status.store_fault is not None:
        yield {"fault": status.store_fault}
    else:
        yield from _failing("store", "{where} cannot reach it")(status)


def _store_full(status: "DeploymentStatus") -> Iterator[Fields]:
    if status.store is not None and status.store.write_fault is not None:
        yield {"fault": status.store.write_fault}
    else:
        yield from _failing("store_writes", "{where} failed to write in the last half minute")(status)


def _failing(check: str, fault: str = "{where}") -> Seen:
    """Live processes that fail this readiness check."""

    def seen(status: "DeploymentStatus") -> Iterator[Fields]:
        live = [each for each in _processes(status) if not each.silent(status.at)]
        failing = [each for each in live if check in each.failing]
        if check == _CONSUMING:
            failing = [
                each for each in failing if not _EXPLAINS.intersection(each.failing) and _has_begun(each, status.at)
            ]
        if failing:
            names = ", ".join(sorted({f"{each.role} on {each.host}" for each in failing}))
            yield {"fault": fault.format(where=names)}

    return seen


_CONSUMING: Final = "consuming"
_EXPLAINS: Final = frozenset({"log", "store", "store_in_step_with_topics", "keys_in_step_with_store"})
"""The checks that explain why a process does not read its topic."""


def _has_begun(process: RunningProcess, now: datetime) -> bool:
    return now - process.started_at > LATE


def _processes(status: "DeploymentStatus") -> Sequence[RunningProcess]:
    return () if status.store is None else status.store.processes


def _none_of(role: str) -> Seen:
    """No live process of `role`, though others are known, or were until a moment ago."""

    def seen(status: "DeploymentStatus") -> Iterator[Fields]:
        every = _processes(status)
        mine = sorted((each for each in every if each.role in {role, _EVERYTHING}), key=lambda each: each.seen_at)
        if not every or any(not each.silent(status.at) for each in mine):
            return
        last = "none is registered" if not mine else f"the last one, on {mine[-1].host}, was killed or lost the store"
        since = f" {span(status.at - mine[-1].seen_at)} ago" if mine else ""
        yield {"role": role, "last": last + since}

    return seen


def _silent(status: "DeploymentStatus") -> Iterator[Fields]:
    """Processes that were killed while others of their role live."""
    every = _processes(status)
    for each in every:
        live = sum(other.role == each.role and not other.silent(status.at) for other in every)
        if live and each.silent(status.at):
            yield {"role": each.role, "host": each.host, "ago": span(status.at - each.seen_at), "live": live}


def _topics_lost(status: "DeploymentStatus") -> Iterator[Fields]:
    if status.lost is None:
        return
    if status.lost.beyond:
        yield {"loss": "the requests topic was lost or recreated: submissions that it had may be lost"}
    for gap in status.lost.gaps:
        count = "an unknown number of" if gap.missing is None else f"{gap.missing:,}"
        yield {"loss": f"{gap.topic}: partition {gap.partition} lost {count} messages before they were received"}


def _unowned(status: "DeploymentStatus") -> Iterator[Fields]:
    if status.lost is not None and status.lost.unowned:
        yield {"submissions": some(status.lost.unowned, "due submission")}


def _lag(status: "DeploymentStatus") -> Iterator[Fields]:
    if status.log is None:
        return
    for lag in status.log.lags:
        members = status.log.members.get(lag.group.name)
        if lag.messages and (members == 0 or lag.seconds > LATE.total_seconds()):
            unread = ", and no process reads it" if members == 0 else ""
            values = {"group": lag.group.name, "messages": lag.messages, "seconds": lag.seconds}
            yield {**values, "unread": unread, "role": _role(lag.group), "topic": lag.group.topic}


def _deletion_nears(status: "DeploymentStatus") -> Iterator[Fields]:
    for lag in status.log.lags if status.log is not None else ():
        if lag.kept is not None and lag.deleted_in is not None:
            values = {"group": lag.group.name, "topic": lag.group.topic, "role": _role(lag.group)}
            times = {"age": span(timedelta(seconds=lag.seconds)), "kept": span(lag.kept), "left": span(lag.deleted_in)}
            yield {**values, **times, "longer": 4 * lag.kept // timedelta(milliseconds=1)}


def _role(group: Group) -> str:
    """The role whose processes are this group's members; a topic prefix may precede it in the group's name."""
    return group.name.rpartition("forwarder-")[2]


def _topics_missing(status: "DeploymentStatus") -> Iterator[Fields]:
    if status.log is not None and status.log.missing:
        yield {"topics": ", ".join(status.log.missing)}


def _replicas(status: "DeploymentStatus") -> Iterator[Fields]:
    for name, topic in status.log.topics.items() if status.log is not None else ():
        if topic.in_sync < topic.replicas:
            yield {"topic": name, "in_sync": topic.in_sync, "replicas": topic.replicas}


def _tables(status: "DeploymentStatus") -> Iterator[Fields]:
    if status.store is not None and not status.store.current:
        yield {"at": ", ".join(status.store.revisions) or "nothing", "wanted": status.store.wanted_revision}


def _no_secret(status: "DeploymentStatus") -> Iterator[Fields]:
    store = status.store
    if store is not None and store.current and not any(each.state is SecretState.ACTIVE for each in store.secrets):
        yield {}


def _no_sealing_key(status: "DeploymentStatus") -> Iterator[Fields]:
    store = status.store
    if store is not None and store.current and not store.sealing_keys and not [*_no_secret(status)]:
        yield {}


def _accounts(status: "DeploymentStatus", *states: AccountState) -> "Iterator[tuple[AccountStatus, dict[str, Any]]]":
    """The accounts in one of these states, with the values that their texts need. Never those of test keys."""
    store = status.store
    pms = pms_states(_processes(status), status.at)
    for each in store.accounts if store is not None else ():
        work, state = each.backlog.work, pms.get(each.backlog.account_id)
        if each.backlog.state not in states:
            continue
        most, sampled = each.waiting.most, each.waiting.sampled
        them = "them" if sampled >= work.pending else f"the first {sampled:,}"
        why = f", {most[1]:,} of {them} after {most[0]}" if most is not None else ""
        wait = state.wait_seconds if state is not None and state.left_alone else None
        due = each.waiting.due_at if wait is None else status.at + timedelta(seconds=wait)
        yield (
            each,
            {
                "account": each.backlog.account_id,
                "pending": work.pending,
                "why": why,
                "next": "" if due is None else f", next try {until(due, status.at)}",
                "pms": state,
                "most": most,
            },
        )


_CREDENTIAL: Final = frozenset({"pms_unauthorized", "pms_credential_invalid", "pms_scope_too_small", "cannot_open"})
"""The reasons that another credential mends."""


def credential_state(reason: str | None) -> str:
    """What a reason says of the account's credential; empty if nothing."""
    if reason == "cannot_open":
        return "; its credential cannot be opened with the secrets of this deployment"
    return "; its PMS refuses the credential" if reason in _CREDENTIAL else ""


def _breaker_open(status: "DeploymentStatus") -> Iterator[Fields]:
    for _, values in _accounts(status, AccountState.ACTIVE, AccountState.PAUSED, AccountState.UNKNOWN):
        state = values["pms"]
        if state is not None and state.left_alone:
            reason = state.reason or (values["most"] or ("unknown",))[0]
            yield {**values, "reason": reason, "breaker": state.breaker, "credential": credential_state(reason)}


def _retrying(status: "DeploymentStatus") -> Iterator[Fields]:
    for each, values in _accounts(status, AccountState.ACTIVE):
        most, state = values["most"], values["pms"]
        if most is None or (state is not None and state.left_alone) or not each.backlog.work.pending:
            continue
        tried = sum(count for reason, count in each.waiting.reasons.items() if reason is not None)
        if 2 * tried >= each.waiting.sampled:
            yield {**values, "credential": credential_state(most[0])}


def _unclaimed(status: "DeploymentStatus") -> Iterator[Fields]:
    explained = {values["account"] for seen in (_breaker_open, _retrying) for values in seen(status)}
    workers = sum(each.role in {"worker", _EVERYTHING} and not each.silent(status.at) for each in _processes(status))
    for each, values in _accounts(status, AccountState.ACTIVE):
        work, state = each.backlog.work, values["pms"]
        if work.oldest_due_at is None or status.at - work.oldest_due_at <= LATE or values["account"] in explained:
            continue
        flight = "" if state is None else f", with {state.in_flight:,} of {state.limit:,} pushes under way"
        at_work = f"{workers} workers run{flight}" if workers else "no worker runs"
        yield {**values, "due": work.due, "age": span(status.at - work.oldest_due_at), "workers": at_work}


def _old(status: "DeploymentStatus") -> Iterator[Fields]:
    for each, values in _accounts(status, AccountState.ACTIVE):
        oldest = each.backlog.work.oldest_pending_at
        if oldest is not None and status.at - oldest > OLD:
            yield {**values, "age": span(status.at - oldest)}


def _of_account(state: AccountState) -> Seen:
    """Accounts in this state with pending submissions."""
    return lambda status: (values for _, values in _accounts(status, state) if values["pending"])


def _in_doubt(status: "DeploymentStatus") -> Iterator[Fields]:
    for each, values in _accounts(status, *(state for state in AccountState if state is not AccountState.TEST)):
        work = each.backlog.work
        if work.in_doubt:
            oldest = work.oldest_in_doubt_at
            since = "" if oldest is None else f", the oldest for {span(status.at - oldest)}"
            yield {**values, "count": work.in_doubt, "since": since}


def _failed(status: "DeploymentStatus") -> Iterator[Fields]:
    failed = status.store.failed_by_class or {} if status.store is not None else {}
    yield from ({"class": name, "submissions": some(count, "submission")} for name, count in sorted(failed.items()))


def _set_aside(failure_class: str) -> Seen:
    """Messages of that class that nobody has acknowledged."""

    def seen(status: "DeploymentStatus") -> Iterator[Fields]:
        for each in status.store.set_aside if status.store is not None else ():
            if each.failure_class == failure_class:
                last = span(status.at - each.last_at)
                yield {"class": failure_class, "messages": some(each.messages, "message"), "last": last}

    return seen


def _counted(name: str, noun: str) -> Seen:
    """A number of the store that should be 0."""

    def seen(status: "DeploymentStatus") -> Iterator[Fields]:
        count = 0 if status.store is None else getattr(status.store, name)
        if count:
            yield {"count": some(count, noun)}

    return seen


def _endpoint_late(status: "DeploymentStatus") -> Iterator[Fields]:
    for each in status.store.endpoints if status.store is not None else ():
        if each.disabled_reason is None and each.work is not None and status.at - each.work.first_due_at > LATE:
            waits = span(status.at - each.work.first_due_at)
            yield {"endpoint": each.id, "deliveries": some(each.work.pending, "delivery", "deliveries"), "waits": waits}


def _endpoint_disabled(status: "DeploymentStatus") -> Iterator[Fields]:
    for each in status.store.endpoints if status.store is not None else ():
        if each.disabled_reason is not None:
            yield {"endpoint": each.id, "reason": each.disabled_reason}


_SEEN: Final[Mapping[str, Seen]] = {
    "NoIngress": _none_of("ingress"),
    "NoWorker": _none_of("worker"),
    "NoQuery": _none_of("query"),
    "BacklogUnknown": _none_of("housekeeping"),
    "ProcessDown": _silent,
    "StoreAway": _store_away,
    "StoreFull": _store_full,
    "TablesOutdated": _tables,
    "LogAway": _log_away,
    "TopicsMissing": _topics_missing,
    "ReplicasBehind": _replicas,
    "MessagesLost": _topics_lost,
    "PartitionsRemoved": _unowned,
    "Lag": _lag,
    "DeletionNears": _deletion_nears,
    "OldestPending": _old,
    "DueUnclaimed": _unclaimed,
    "UnknownAccount": _of_account(AccountState.UNKNOWN),
    "AccountPaused": _of_account(AccountState.PAUSED),
    "UnpublishedResults": _counted("unpublished", "outcome"),
    "ContainedFaults": _set_aside(INTERNAL_ERROR),
    "BreakerOpen": _breaker_open,
    "PushesFail": _retrying,
    "InDoubt": _in_doubt,
    "Doubles": _counted("doubles", "reservation"),
    "DeadLetters": _failed,
    "UnreadableMessages": _set_aside(UNDECODABLE),
    "WebhookBehind": _endpoint_late,
    "WebhookDisabled": _endpoint_disabled,
    "ForgedMessages": _set_aside(FORGED),
    "KeysEnding": _counted("keys_ending", "API key"),
    "NoSecret": _no_secret,
    "NoSealingKey": _no_sealing_key,
}
"""How each condition is seen that is not only a failing check of a process."""


def some(count: int, noun: str, nouns: str | None = None) -> str:
    """A number of things."""
    return f"{count:,} {noun if count == 1 else nouns or f'{noun}s'}"


def span(time: timedelta) -> str:
    """A time in its largest unit."""
    seconds = max(time.total_seconds(), 0.0)
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.0f} s"


def until(moment: datetime, now: datetime) -> str:
    """How far off a moment is; `now` if it has passed."""
    return "now" if moment <= now else f"in {span(moment - now)}"
