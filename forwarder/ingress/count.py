"""What is counted of submissions: each by its operation and by how it was answered."""

import functools

from prometheus_client import Counter

from forwarder.observability.metrics import SUBMISSIONS
from forwarder.observability.observations import OBSERVATIONS


def tally(operation: str, answer: str) -> None:
    """Count one more submission that was answered so."""
    OBSERVATIONS.count(answered(operation, answer))


@functools.cache
def answered(operation: str, answer: str) -> Counter:
    """The counter of the catalogue, looked up once for each pair of labels."""
    return SUBMISSIONS.labels(operation, answer)
