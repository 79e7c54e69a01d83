"""`Problem`, with a stable `code` that programs may branch on, and `ProblemType`, an entry of the catalogue. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a request: `pointer` is the RFC 6901 JSON Pointer of the value at fault."""

    pointer: str
    code: str
    detail: str

    def as_json(self) -> dict[str, str]:
        return {"pointer": self.pointer, "code": self.code, "detail": self.detail}


def counted(what: str, faults: Sequence[Fault]) -> str:
    """The detail of a problem with these faults: their number, and the first one."""
    count = "1 fault:" if len(faults) == 1 else f"{len(faults)} faults, the first"
    first = f"{faults[0].pointer} {faults[0].detail}".strip()
    return f"The {what} has {count} {first}. errors names each by JSON Pointer."


@dataclass(frozen=True, slots=True)
class Problem:
    """A refusal that says what is wrong, where, and what would be right. `status`: the HTTP status of the response.
    `retry_after`: the seconds after which to retry, if the problem itself knows."""

    code: str
    title: str
    status: int
    detail: str
    request_id: str | None = None
    faults: tuple[Fault, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    retry_after: int | None = None

    def as_json(self) -> dict[str, Any]:
        """The members of RFC 9457 in its order, then ours; absent ones are left out."""
        body: dict[str, Any] = {
            "type": f"/problems/{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
        }
        if self.request_id is not None:
            body["requestId"] = self.request_id
            body["instance"] = f"/api/v1/vrs/submissions/{self.request_id}"
        if self.faults:
            body["errors"] = [fault.as_json() for fault in self.faults]
        return {**body, **self.extra}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "Problem":
        """The problem that `as_json` wrote."""
        return cls(
            body["code"],
            body["title"],
            body["status"],
            body["detail"],
            body.get("requestId"),
            tuple(Fault(**fault) for fault in body.get("errors", ())),
            {name: value for name, value in body.items() if name not in _MEMBERS},
        )


_MEMBERS: Final = frozenset(("type", "title", "status", "detail", "code", "requestId", "instance", "errors"))
"""The JSON members that any problem may have; all others are extra."""


@dataclass(frozen=True, slots=True)
class ProblemType:
    """One kind of problem. `status`: its HTTP status, in responses and in records."""

    code: str
    title: str
    status: int
    when: str
    remedy: str

    def problem(
        self,
        detail: str,
        request_id: str | None = None,
        *,
        faults: Sequence[Fault] = (),
        extra: Mapping[str, Any] | None = None,
    ) -> Problem:
        """One occurrence; `detail` has its specifics."""
        return Problem(self.code, self.title, self.status, detail, request_id, tuple(faults), extra or {})
