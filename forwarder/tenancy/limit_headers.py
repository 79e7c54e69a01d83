"""The HTTP headers of an API key's rate limit.

`RateLimit-Policy` and `RateLimit` follow draft-ietf-httpapi-ratelimit-headers: structured fields, lists of one item.
"""

import functools
from dataclasses import replace
from typing import Final

from forwarder.http.messages import Header, Response, retry_after
from forwarder.reservation.problems import requests
from forwarder.reservation.problems.problem import Problem
from forwarder.tenancy.limits import Allowance
from forwarder.tenancy.port import RateLimit

POLICY: Final = "default"
"""The name of the one policy that a key has."""


def rate_limited(allowance: Allowance) -> Problem:
    """The refusal where the limit of the caller's key is used up."""
    limit = allowance.limit
    return requests.RATE_LIMITED.problem(
        f"This API key may submit, cancel or manage webhooks {limit.requests} times in {limit.seconds} seconds. Nothing was "
        f"accepted. Send the same request again in {allowance.retry_in} seconds."
    )


def with_allowance(response: Response, allowance: Allowance) -> Response:
    """`response`, and what is left of the limit; where that refuses, when to come again."""
    left = f'"{POLICY}";r={allowance.remaining};t={allowance.more_in}'
    again = () if allowance.admitted else (retry_after(allowance.retry_in),)
    return replace(
        response, headers=(*response.headers, *again, _policy(allowance.limit), (b"ratelimit", left.encode()))
    )


@functools.lru_cache(maxsize=1024)
def _policy(limit: RateLimit) -> Header:
    return b"ratelimit-policy", f'"{POLICY}";q={limit.requests};w={limit.seconds}'.encode()
