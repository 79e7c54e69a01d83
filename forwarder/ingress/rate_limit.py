"""The rate limit of a caller's key over HTTP: the refusal, and the header fields of every answer to a limited key. Pure.

`RateLimit-Policy` and `RateLimit` as draft-ietf-httpapi-ratelimit-headers has them: structured fields, lists of one item.
"""

import functools
from dataclasses import replace
from typing import Final

from forwarder.http.responses import Response, retry_after
from forwarder.reservation.problem import Problem
from forwarder.reservation.problems import requests
from forwarder.tenancy.limits import Allowance
from forwarder.tenancy.port import RateLimit

POLICY: Final = "default"
"""The name of the one policy that a key has."""


def rate_limited(allowance: Allowance) -> Problem:
    """What a caller is told whom its key's limit refuses."""
    limit = allowance.limit
    return requests.RATE_LIMITED.problem(
        f"This API key may submit and cancel {limit.requests} times in {limit.seconds} seconds. Nothing was accepted. "
        f"Send the same request again in {allowance.retry_in} seconds."
    )


def with_allowance(answer: Response, allowance: Allowance) -> Response:
    """`answer`, and what is left of the limit; where that refuses, when to come again."""
    left = f'"{POLICY}";r={allowance.remaining};t={allowance.more_in}'
    again = () if allowance.admitted else (retry_after(allowance.retry_in),)
    return replace(answer, headers=(*answer.headers, *again, _policy(allowance.limit), (b"ratelimit", left.encode())))


@functools.lru_cache(maxsize=1024)
def _policy(limit: RateLimit) -> tuple[bytes, bytes]:
    return b"ratelimit-policy", f'"{POLICY}";q={limit.requests};w={limit.seconds}'.encode()
