"""`Problem`, with a stable `code` that programs may branch on, and `ProblemType`, an entry of the catalogue. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from forwarder.reservation.checks.card_numbers import mask


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a request: `pointer` is the RFC 6901 JSON Pointer of the value at fault."""

    pointer: str
    code: str
    detail: str

    def as_json(self) -> dict[str, str]:
        return {"pointer": self.pointer, "code": self.code, "detail": self.detail}


def pointer_to(*steps: str | int) -> str:
    """The JSON Pointer of these members and indexes. Names, which a caller wrote, are cut to 64 characters, card numbers masked."""
    names = (mask(str(step))[:64] for step in steps)
    return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in names)


def with_absolute_links(document: bytes, base_url: bytes) -> bytes:
    """The JSON `document`, in which the links of problems begin with `base_url`, if there is one."""
    if base_url and b'"/problems/' in document:
        # The links of problems as they are written; the quotes cannot occur inside a JSON text.
        for link in (b'"type":"/problems/', b'"instance":"/api/'):
            document = document.replace(link, link.replace(b'"/', b'"%b/' % base_url))
    return document


def summary_of(faults: Sequence[Fault]) -> str:
    """The detail of a problem with these faults: the first one, and how many more there are."""
    first = f"{faults[0].pointer or 'The body'} {faults[0].detail}"
    more = len(faults) - 1
    others = f" There {'is 1 more error' if more == 1 else f'are {more} more errors'}." if more else ""
    return f"{first}{'' if first[-1] in '.?' else '.'}{others} See errors for details."


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
        body: dict[str, Any] = {"type": f"/problems/{self.code}", "title": self.title, "status": self.status}
        body |= {"detail": self.detail, "code": self.code}
        if self.request_id is not None:
            body |= {"requestId": self.request_id, "instance": f"/api/v1/vrs/submissions/{self.request_id}"}
        if self.faults:
            body["errors"] = [fault.as_json() for fault in self.faults]
        return {**body, **self.extra}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "Problem":
        members = {"type", "title", "status", "detail", "code", "requestId", "instance", "errors"}
        faults = tuple(Fault(**fault) for fault in body.get("errors", ()))
        extra = {name: value for name, value in body.items() if name not in members}
        return cls(body["code"], body["title"], body["status"], body["detail"], body.get("requestId"), faults, extra)


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


@dataclass(slots=True)
class Chapter:
    """Problems that are documented together."""

    title: str
    about: str
    problems: list[ProblemType] = field(default_factory=list)

    def problem(self, code: str, title: str, status: int, when: str, remedy: str) -> ProblemType:
        self.problems.append(ProblemType(code, title, status, when, remedy))
        return self.problems[-1]
