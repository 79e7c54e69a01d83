"""The conditions that operators act on: the list in conditions.toml, and how each is seen in a snapshot of the deployment, for
`forwarder status` and the console's overview. The Prometheus rules and docs/operations/alerts.md are made from the same list."""

import shlex
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache
from importlib.resources import files
from itertools import chain
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from forwarder.observability.logging import printable
from forwarder.operate.deployment.throughput import pms_states
from forwarder.oversight.backlog import AccountState
from forwarder.reservation.outcome import FORGED, INTERNAL_ERROR, UNDECODABLE
from forwarder.tenancy.sealing import SecretState

if TYPE_CHECKING:
    from forwarder.operate.deployment.status import DeploymentStatus

LATE: Final = timedelta(minutes=1)  # lag, or a due and untouched row, older than this is reported
_EVERYTHING: Final = "up"  # the role of a process with all stages
_MAX_ACCOUNTS_NAMED: Final = 5

_Seen = Iterator[tuple[str, Mapping[str, Any]]]  # the name of each condition that is met, and the values of its texts


class Severity(StrEnum):
    """How soon somebody must look: at once, or in the morning."""

    PAGE = "page"
    TICKET = "ticket"


@dataclass(frozen=True, slots=True)
class DeploymentCondition:
    """Something that can be wrong, as conditions.toml describes it. `expr` is empty without an alert. `check`: the readiness check
    of processes that shows it. `status_lacks`: why no snapshot shows it."""

    name: str
    group: str
    severity: Severity
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
def conditions() -> Sequence[DeploymentCondition]:
    text = files("forwarder.operate.deployment").joinpath("conditions.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text).items()
    return [DeploymentCondition(name, **given | {"severity": Severity(given["severity"])}) for name, given in table]


@dataclass(frozen=True, slots=True)
class Finding:
    """A case of a condition: what is wrong, and the remedy, usually a command. `page`: of the console; empty if none shows it."""

    condition: DeploymentCondition
    says: str
    mend: str
    page: str = ""

    @property
    def urgent(self) -> bool:
        return self.condition.severity is Severity.PAGE


def findings_of(status: "DeploymentStatus") -> Sequence[Finding]:
    """What is wrong, most urgent first, then in the order of the list."""
    seen: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for name, case in chain(*(see(status) for see in (_processes, _log, _store, _endpoints, _accounts))):
        seen[name].append(case)
    found = []
    for condition in conditions():
        for values in seen[condition.name]:
            quoted = {name: quote(str(value), safe="") for name, value in values.items()}
            # A command is typed as it is printed.
            words = {name: shlex.quote(str(value)) for name, value in values.items()}
            says, mend = printable(condition.says.format_map(values)), printable(condition.do.format_map(words))
            found.append(Finding(condition, says, mend, condition.page.format_map(quoted)))
    return sorted(found, key=lambda finding: not finding.urgent)


# --- what a snapshot shows --------------------------------------------------------------------------------------------------

_NEEDED: Final = {"NoIngress": "ingress", "NoWorker": "worker", "NoQuery": "query", "BacklogUnknown": "housekeeping"}


def _processes(status: "DeploymentStatus") -> _Seen:
    every, write_fault = ((), None) if (store := status.store) is None else (store.processes, store.write_fault)
    live = [each for each in every if not each.silent(status.at)]
    # By condition: the check of processes that shows it, the words for its failure, and what the snapshot itself met.
    checked: dict[str, tuple[str, str, str | None]]
    takes_fault = [each for each in conditions() if each.check and "{fault}" in each.says]
    checked = {each.name: (each.check, "{where}", None) for each in takes_fault} | {
        "LogAway": ("log", "{where} cannot reach it", status.log_fault),
        "StoreAway": ("store", "{where} cannot reach it", status.store_fault),
        "StoreFull": ("store_writes", "{where} failed to write in the last half minute", write_fault),
    }
    for name, (check, words, met) in checked.items():
        failing = [each for each in live if check in each.failing]
        if check == "consuming":
            explain = {"log", "store", "store_in_step_with_topics", "keys_in_step_with_store"}
            begun = [each for each in failing if status.at - each.started_at > LATE]
            failing = [each for each in begun if not explain.intersection(each.failing)]
        where = ", ".join(sorted({f"{each.role} on {each.host}" for each in failing}))
        if fault := met or (words.format(where=where) if failing else None):
            yield name, {"fault": fault}
    for name, role in _NEEDED.items():
        mine = sorted((each for each in every if each.role in {role, _EVERYTHING}), key=lambda each: each.seen_at)
        if every and all(each.silent(status.at) for each in mine):
            last = "none is registered"
            if mine:
                ago = span(status.at - mine[-1].seen_at)
                last = f"the last one, on {mine[-1].host}, was killed or lost the store {ago} ago"
            yield name, {"role": role, "last": last}
    needed = {_EVERYTHING, *_NEEDED.values()}
    for each in every:
        others = sum(other.role == each.role for other in live)
        if each.silent(status.at) and (others or each.role not in needed):
            ago = span(status.at - each.seen_at)
            yield "ProcessDown", {"role": each.role, "host": each.host, "ago": ago, "live": others}


def _log(status: "DeploymentStatus") -> _Seen:
    if (lost := status.lost) is not None:
        if lost.beyond:
            loss = "the requests topic was lost or recreated: submissions that it had may be lost"
            yield "MessagesLost", {"loss": loss}
        for gap in lost.gaps:
            count = "an unknown number of" if gap.missing is None else f"{gap.missing:,}"
            loss = f"{gap.topic}: partition {gap.partition} lost {count} messages before they were received"
            yield "MessagesLost", {"loss": loss}
        if lost.unowned:
            yield "PartitionsRemoved", {"submissions": some(lost.unowned, "due submission")}
    if status.log is None:
        return
    if status.log.missing:
        yield "TopicsMissing", {"topics": ", ".join(status.log.missing)}
    for name, topic in status.log.topics.items():
        if topic.in_sync < topic.replicas:
            yield "ReplicasBehind", {"topic": name, "in_sync": topic.in_sync, "replicas": topic.replicas}
    for lag in status.log.lags:
        group, members = lag.group.name, status.log.members.get(lag.group.name)
        # The role whose processes are this group's members; a topic prefix may precede it in the group's name.
        values = {"group": group, "topic": lag.group.topic, "role": group.rpartition("forwarder-")[2]}
        if lag.messages and (members == 0 or lag.seconds > LATE.total_seconds()):
            unread = ", and no process reads it" if members == 0 else ""
            yield "Lag", {**values, "messages": lag.messages, "seconds": lag.seconds, "unread": unread}
        if lag.kept is not None and lag.deleted_in is not None:
            times = {"age": span(timedelta(seconds=lag.seconds)), "kept": span(lag.kept), "left": span(lag.deleted_in)}
            yield "DeletionNears", {**values, **times, "longer": 4 * lag.kept // timedelta(milliseconds=1)}


_SET_ASIDE: Final = {INTERNAL_ERROR: "ContainedFaults", UNDECODABLE: "UnreadableMessages", FORGED: "ForgedMessages"}


def _store(status: "DeploymentStatus") -> _Seen:
    if (store := status.store) is None:
        return
    if not store.current:
        yield "TablesOutdated", {"at": ", ".join(store.revisions) or "nothing", "wanted": store.wanted_revision}
    elif not any(each.state is SecretState.ACTIVE for each in store.secrets):
        yield "NoSecret", {}
    elif not store.sealing_keys:
        yield "NoSealingKey", {}
    for failure_class, count in sorted(store.work.failed_by_class.items()):
        yield "DeadLetters", {"class": failure_class, "submissions": some(count, "submission")}
    for each in store.work.set_aside:
        if each.failure_class in _SET_ASIDE:
            last = span(status.at - each.last_at)
            values = {"class": each.failure_class, "messages": some(each.messages, "message"), "last": last}
            yield _SET_ASIDE[each.failure_class], values
    if store.unpublished:
        yield "UnpublishedResults", {"count": some(store.unpublished, "outcome")}
    if store.doubles:
        yield "Doubles", {"count": some(store.doubles, "reservation")}
    if store.work.keys_ending:
        yield "KeysEnding", {"count": some(store.work.keys_ending, "API key")}
    if ending := store.work.certificates_ending:
        more = f" and {len(ending) - _MAX_ACCOUNTS_NAMED} more" if len(ending) > _MAX_ACCOUNTS_NAMED else ""
        yield "PmsCertificatesEnding", {"accounts": ", ".join(ending[:_MAX_ACCOUNTS_NAMED]) + more}


def _endpoints(status: "DeploymentStatus") -> _Seen:
    for endpoint in status.store.endpoints if status.store is not None else ():
        if endpoint.disabled_reason is not None:
            yield "WebhookDisabled", {"endpoint": endpoint.id, "reason": endpoint.disabled_reason}
        elif endpoint.work is not None and status.at - endpoint.work.first_due_at > LATE:
            deliveries = some(endpoint.work.pending, "delivery", "deliveries")
            waits = span(status.at - endpoint.work.first_due_at)
            yield "WebhookBehind", {"endpoint": endpoint.id, "deliveries": deliveries, "waits": waits}


_REFUSALS: Final = ("pms_unauthorized", "pms_credential_invalid", "pms_scope_too_small")
_CREDENTIAL: Final = {
    **dict.fromkeys(_REFUSALS, "; its PMS refuses the credential"),
    "cannot_open": "; its credential cannot be opened with the secrets of this deployment",
}
"""What the reasons that another credential mends say of it."""


def _accounts(status: "DeploymentStatus") -> _Seen:
    """Accounts with open work. Never those of test keys."""
    if status.store is None:
        return
    processes, now = status.store.processes, status.at
    pms = pms_states(processes, now)
    workers = sum(each.role in {"worker", _EVERYTHING} and not each.silent(now) for each in processes)
    for each in status.store.accounts:
        work, waiting, throttled = each.work, each.waiting, pms.get(each.account_id)
        most, alone = waiting.most, throttled is not None and throttled.left_alone > 0
        them = "them" if waiting.sampled >= work.pending else f"the first {waiting.sampled:,}"
        wait = throttled.wait_seconds if throttled is not None and alone else None
        due = waiting.due_at if wait is None else now + timedelta(seconds=wait)
        values = {
            "account": each.account_id,
            "pending": work.pending,
            "why": "" if most is None else f", {most[1]:,} of {them} after {most[0]}",
            "next": "" if due is None else f", next try {until(due, now)}",
        }
        if each.state is AccountState.TEST:
            continue
        if work.in_doubt:
            since = "" if (oldest := work.oldest_in_doubt_at) is None else f", the oldest for {span(now - oldest)}"
            yield "InDoubt", {**values, "count": work.in_doubt, "since": since}
        if throttled is not None and alone:
            reason = throttled.reason or (most or ("unknown",))[0]
            said = {"reason": reason, "breaker": throttled.breaker, "credential": _CREDENTIAL.get(reason, "")}
            yield "BreakerOpen", {**values, **said}
        if each.state is not AccountState.ACTIVE:
            if work.pending:
                yield "AccountPaused" if each.state is AccountState.PAUSED else "UnknownAccount", values
            continue
        tried = sum(count for reason, count in waiting.reasons.items() if reason is not None)
        retrying = not alone and most is not None and work.pending > 0 and 2 * tried >= waiting.sampled
        if most is not None and retrying:
            yield "PushesFail", {**values, "credential": _CREDENTIAL.get(most[0], "")}
        if work.oldest_due_at is not None and now - work.oldest_due_at > LATE and not (alone or retrying):
            flight = throttled and f", with {throttled.in_flight:,} of {throttled.limit:,} pushes under way"
            at_work = f"{workers} workers run{flight or ''}" if workers else "no worker runs"
            yield "DueUnclaimed", {**values, "due": work.due, "age": span(now - work.oldest_due_at), "workers": at_work}
        if work.oldest_pending_at is not None and now - work.oldest_pending_at > timedelta(minutes=30):
            yield "OldestPending", {**values, "age": span(now - work.oldest_pending_at)}


def some(count: int, noun: str, nouns: str | None = None) -> str:
    return f"{count:,} {noun if count == 1 else nouns or f'{noun}s'}"


def span(time: timedelta) -> str:
    seconds = max(time.total_seconds(), 0.0)
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.0f} s"


def until(moment: datetime, now: datetime) -> str:
    """How far off a moment is; `now` if it has passed."""
    return "now" if moment <= now else f"in {span(moment - now)}"
