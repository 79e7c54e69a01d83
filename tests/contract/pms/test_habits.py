"""Every kind of PMS comes to the right end whatever its habits; and each rule that this rests on is found missing by a habit."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

import pytest

from forwarder.pms.http.response import Response
from forwarder.pms.kinds.generic import GenericAdapter
from forwarder.pms.registry import KINDS
from forwarder.process.clock import iso
from forwarder.reservation.evidence import Absence, Create, Evidence, Facts, LookUp, NextStep
from forwarder.reservation.outcome import Confirmed, Deferred, Outcome
from forwarder_pms_kit.conformance.course import HABIT_CHECKS
from forwarder_pms_kit.conformance.habits import HABITS
from forwarder_pms_kit.conformance.trial import result_of, trial
from forwarder_pms_kit.runs import simulated_site
from tests.support.simulator.accounts import ACCOUNTS, REPRESENTATIVE

BY_NAME: Final = {check.name.removeprefix("habit-"): check for check in HABIT_CHECKS}


async def wrongs(account: str, names: set[str], *, calendars: bool = True) -> dict[str, str]:
    """Each habit of those named at which the account goes wrong, with what went wrong."""
    asked, found = ACCOUNTS[account], dict[str, str]()
    async with simulated_site(asked.speaks, calendars=calendars) as simulated:
        site = asked.at(simulated)
        async with trial(asked.kind, KINDS[asked.kind], site) as tried:
            for name in sorted(names):
                result = await result_of(BY_NAME[name], tried)
                if result.verdict == "failed":
                    found[name] = "; ".join(result.findings)
    return found


_ACCOUNTS = [
    name if name in REPRESENTATIVE else pytest.param(name, marks=pytest.mark.slow) for name in sorted(ACCOUNTS)
]
"""For a change, one of each adapter's code: what a page says of habits is in `test_pms_conformance.py`."""


@pytest.mark.parametrize("account", _ACCOUNTS)
async def test_it_books_once_and_ends_rightly(account: str) -> None:
    assert await wrongs(account, set(HABITS), calendars=False) == {}


@pytest.mark.parametrize("account", ["generic", "hostaway"])
async def test_so_it_does_where_nights_that_are_taken_are_refused(account: str) -> None:
    assert await wrongs(account, set(HABITS)) == {}


# --- each rule taken back ---


def _never_looked_up(*_: object, may_create: bool) -> NextStep:
    return Create()


def _never_believed(known: Evidence, *_: object, may_create: bool) -> NextStep:
    return LookUp(60.0) if known.open else Create()


def _believed_after(seconds: float, again: float) -> Callable[..., float | None]:
    """Absences are believed that many seconds after the push, once two are so far apart."""

    def next_look(absences: Sequence[Absence], _facts: Facts, *, refused: bool) -> float | None:
        first = next((one.after for one in absences if one.after >= seconds), None)
        if first is None:
            return seconds
        return None if any(one.after >= first + again for one in absences) else first + again

    return next_look


def _for_sure(response: Response, _now: datetime) -> Deferred:
    return Deferred("pms_unavailable", f"HTTP {response.status_code}")


def _as_it_came(response: Response) -> bytes:
    return response.content


async def _books_nothing(*_: object) -> Outcome:
    return Confirmed("1")


_RUN: Final = "forwarder.worker.push.run"
_EVIDENCE: Final = "forwarder.reservation.evidence"
_OUTCOMES: Final = "forwarder.pms.http.outcomes"
_MAPPED: Final = "forwarder.pms.mapping"

_AFTER_A_LOSS: Final = (
    *(
        "answer-lost",
        "shows-late-45-s",
        "shows-late-60-s",
        "commits-late-75-s",
        "commits-late-shows-late",
        "list-shifts",
    ),
    *("202-and-made-90-s-later", "201-and-shows-late", "garbage", "answer-of-somebody-else", "shown-twice"),
    *("reference-replaced", "reference-cut-answer-lost", "reference-upper-case-answer-lost"),
    "reference-prefixed-answer-lost",
    *("exists-409", "exists-409-at-once", "exists-422-at-once"),
    *("500", "503", "503-with-retry-after", "408", "302", "303"),
)

TAKEN_BACK: Final[Mapping[str, tuple[str, Mapping[str, object], str]]] = {
    "what is confirmed was made": (
        "hostaway",
        {f"{_MAPPED}.adapter.MappedAdapter.create": _books_nothing},
        "none",
    ),
    "what may be made is looked up before another create": (
        "hostaway",
        {f"{_RUN}.next_step": _never_looked_up},
        " ".join(_AFTER_A_LOSS),
    ),
    "an absence is believed in the end": (
        "hostaway",
        {f"{_RUN}.next_step": _never_believed},
        "never-made-500",
    ),
    "an absence counts no sooner than `settles`": (
        "hostaway",
        {f"{_EVIDENCE}._next_look": _believed_after(30.0, 20.0)},
        "shows-late-60-s commits-late-75-s commits-late-shows-late list-shifts",
    ),
    "an absence counts twice": (
        "hostaway",
        {f"{_EVIDENCE}._next_look": _believed_after(120.0, 0.0)},
        "list-shifts",
    ),
    "a 5xx, a 408 and a redirect are in doubt": (
        "hostaway",
        {"forwarder.pms.sdk.unexpected": _for_sure},
        "500 503 503-with-retry-after 408 302 303",
    ),
    "`exists already` is a yes": (
        "hostaway",
        {f"{_OUTCOMES}._it_exists": lambda _: re.compile("(?!)")},
        "exists-409-at-once exists-422-at-once",
    ),
    "a 2xx that cannot be read is a yes": (
        "hostaway",
        {f"{_OUTCOMES}.is_yes": lambda _: False},
        "201-and-shows-late",
    ),
    "our reference is known in other forms": (
        "generic",
        {"forwarder.pms.sdk.is_reference": lambda shown, ours: shown == ours},
        "reference-cut reference-upper-case reference-in-a-text",
    ),
    "keys end": (
        "generic",
        {
            "forwarder.pms.kinds.generic.GenericAdapter.capabilities": replace(
                GenericAdapter.capabilities, key_seconds=1e9
            )
        },
        "keys-end",
    ),
    "a no after a doubt is in doubt": (
        "generic",
        {
            f"{_RUN}.after_create": lambda outcome, known, facts, clock: (
                outcome,
                known.after(outcome, facts.target, iso(clock.now())),
            )
        },
        "own-booking-in-the-way",
    ),
    "bodies are read in their own encoding": (
        "hostaway",
        {"forwarder.pms.http.response.Response.json_text": property(_as_it_came)},
        "byte-order-mark latin-1 lone-surrogate",
    ),
}
"""Rule → the kind on which it is taken back, what is put in its place, and the habits that find it out."""


@pytest.mark.parametrize("rule", sorted(TAKEN_BACK))
async def test_a_rule_taken_back_is_found_by_its_habits(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, instead, habits = TAKEN_BACK[rule]
    for where, what in instead.items():
        monkeypatch.setattr(where, what)
    calendars = "own-booking-in-the-way" in habits
    found = await wrongs(kind, set(habits.split()), calendars=calendars)
    assert set(found) == set(habits.split())


def test_each_habit_finds_something_out() -> None:
    named = {habit for _, _, habits in TAKEN_BACK.values() for habit in habits.split()}
    assert set(HABITS) - named == set()
