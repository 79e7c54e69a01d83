"""What the rate limit of an API key adds to the operations that it holds for: a refusal, and two headers of their answers."""

from typing import Final

from forwarder.published.answering import Json, problems, references
from forwarder.reservation.problems.requests import RATE_LIMITED, UNAUTHENTICATED

_FIELDS: Final = ("RateLimit-Policy", "RateLimit")


def limited(paths: Json) -> Json:
    """`paths`, each of whose operations counts."""
    for operations in paths.values():
        for operation in operations.values():
            responses = operation["responses"] | problems((RATE_LIMITED,))
            for status, response in responses.items():
                if status != str(UNAUTHENTICATED.status):
                    response["headers"] = response.get("headers", {}) | references(_FIELDS)
            operation["responses"] = dict(sorted(responses.items()))
    return paths
