"""A check: one promise that every adapter makes, and how it is put to the test. Its findings say where it is broken."""

import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from forwarder_pms_kit.conformance.trial import Misbehaved, NotApplicable, Trial

Findings = AsyncIterator[str]
Verdict = Literal["passed", "failed", "not applicable"]

_MAX_FINDINGS: Final = 20


@dataclass(frozen=True, slots=True)
class Check:
    """`promise` is one sentence. `find` yields a sentence for each way in which it is broken; it may raise `NotApplicable`."""

    name: str
    promise: str
    find: Callable[[Trial], Findings]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one check. `findings`: what is wrong, or why the check does not apply; none where it passed."""

    check: Check
    verdict: Verdict
    findings: tuple[str, ...]
    seconds: float

    def as_json(self) -> dict[str, Any]:
        return {
            "check": self.check.name,
            "promise": self.check.promise,
            "verdict": self.verdict,
            "findings": list(self.findings),
            "seconds": round(self.seconds, 3),
        }


def check(find: Callable[[Trial], Findings]) -> Check:
    """A check of a function: named as the function is, with its docstring as the promise."""
    promise = " ".join((find.__doc__ or "").split())
    return Check(find.__name__.replace("_", "-"), promise, find)


async def result_of(asked: Check, trial: Trial) -> Result:
    """Put it to the test. Raises nothing of what the adapter does."""
    began = time.monotonic()
    findings: list[str] = []
    verdict: Verdict = "passed"
    try:
        async for finding in asked.find(trial):
            findings.append(finding)
            if len(findings) == _MAX_FINDINGS:
                break
    except NotApplicable as reason:
        verdict, findings = "not applicable", [str(reason)]
    except Misbehaved as fault:
        findings.append(str(fault))
    if findings and verdict == "passed":
        verdict = "failed"
    return Result(asked, verdict, tuple(findings), time.monotonic() - began)
