"""Builds the comparison of the topics with the store, for every process that consumes them."""

from forwarder.assembly.backend import Backend
from forwarder.operations.recovery.topics import TopicCheck
from forwarder.store.submissions.repairs import Places


def topic_check(backend: Backend) -> TopicCheck:
    """The check for the backend's log and store."""
    return TopicCheck(backend.log, backend.settings.topics.requests, Places(backend.engine), backend.clock)
