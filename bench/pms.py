"""A lean PMS of the open contract: fast enough not to be what is measured, and it counts what it was asked to make.

`POST {any base}/reservations` makes a booking, unless its `Idempotency-Key` was seen before; `GET {any base}/reservations
?reference=R` finds one; `GET /count` is the number of bookings made; `GET /stats` tells doubles: bookings that carry the same
caller's `transactionId`, whatever reference and key they came under;
`GET /arrivals?run=R` tells when those of a run came. A share of the creations may be refused with 503.
"""

import argparse
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from bench.lean_http import Request, serve


@dataclass(slots=True)
class LeanPms:
    """Everything in memory. Refuses a share of `errors`, the same ones in each run."""

    errors: float = 0.0
    luck: random.Random = field(default_factory=lambda: random.Random(7))
    made: int = 0
    refused: int = 0
    replayed: int = 0
    by_key: dict[bytes, int] = field(default_factory=dict)
    by_reference: dict[str, int] = field(default_factory=dict)
    references: list[str] = field(default_factory=list)
    by_submission: Counter[str] = field(default_factory=Counter)
    arrivals: dict[str, float] = field(default_factory=dict)

    def answer(self, request: Request) -> tuple[int, bytes]:
        """The whole of its HTTP interface."""
        if request.path.endswith("/reservations"):
            return self._create(request) if request.method == "POST" else self._find(request)
        match request.method, request.path:
            case "GET", "/count":
                return 200, str(self.made).encode()
            case "GET", "/stats":
                return 200, json.dumps(self._stats()).encode()
            case "GET", "/arrivals":
                return 200, json.dumps(self._arrivals(request.query)).encode()
            case "GET", "/healthz":
                return 200, b'"ok"'
            case _:
                return 404, b"{}"

    def _create(self, request: Request) -> tuple[int, bytes]:
        if self.errors and self.luck.random() < self.errors:
            self.refused += 1
            return 503, b'{"error":"try later"}'
        key = request.headers.get(b"idempotency-key")
        if key is not None and key in self.by_key:
            self.replayed += 1
            return 200, self._booking(self.by_key[key])
        booking = json.loads(request.body)
        self.made += 1
        if key is not None:
            self.by_key[key] = self.made
        reference = booking.get("reference", "")
        self.by_reference[reference] = self.made
        self.references.append(reference)
        submission = booking.get("transactionId") or reference
        self.by_submission[submission] += 1
        self.arrivals.setdefault(submission, time.monotonic())
        return 201, self._booking(self.made)

    def _find(self, request: Request) -> tuple[int, bytes]:
        (reference,) = parse_qs(request.query).get("reference", [""])
        number = self.by_reference.get(reference)
        return 200, b'{"data":[%s]}' % (b"" if number is None else self._booking(number))

    def _booking(self, number: int) -> bytes:
        return b'{"id":%d,"status":"CONFIRMED","reference":"%b"}' % (number, self.references[number - 1].encode())

    def _arrivals(self, query: str) -> dict[str, float]:
        """When each submission of a run first came, on the monotonic clock that all processes of a machine share."""
        (run,) = parse_qs(query)["run"]
        return {submission: came for submission, came in self.arrivals.items() if submission.startswith(f"{run}-")}

    def _stats(self) -> dict[str, int]:
        return {
            "made": self.made,
            "submissions": len(self.by_submission),
            "duplicates": self.made - len(self.by_submission),
            "most_for_one": max(self.by_submission.values(), default=0),
            "replayed": self.replayed,
            "refused": self.refused,
        }


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m bench.pms")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--delay", type=float, default=0.0, metavar="SECONDS", help="before each answer")
    parser.add_argument("--errors", type=float, default=0.0, metavar="SHARE", help="of creations, answered with 503")
    arguments = parser.parse_args()
    serve(LeanPms(arguments.errors).answer, host=arguments.host, port=arguments.port, delay=arguments.delay)


if __name__ == "__main__":
    main()
