"""What the catalogue says of one kind of problem."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forwarder.reservation.problem import Fault, Problem


@dataclass(frozen=True, slots=True)
class ProblemType:
    """One kind of problem. `status`: the HTTP status that it is answered with, and that it carries where it is recorded."""

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
        """One occurrence; `detail` tells what is special about it."""
        return Problem(self.code, self.title, self.status, detail, request_id, tuple(faults), extra or {})
