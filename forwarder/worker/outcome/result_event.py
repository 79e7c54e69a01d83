"""The result event of a row whose status, or whose cancellation, comes to something. Pure."""

from collections.abc import Mapping
from typing import Any

from forwarder.reservation.cancellation import Cancellation
from forwarder.reservation.outcome import Status
from forwarder.reservation.result import ResultEvent, result_data
from forwarder.store.submissions.work import Work


def event_of(
    work: Work, status: Status, moment: str, record: Mapping[str, Any], cancellation: Cancellation | None
) -> ResultEvent:
    """What is announced of `work` as of `moment` (ISO 8601): the revision after the one that it has."""
    submission = work.submission
    data = result_data(
        request_id=submission.request_id,
        workspace_id=submission.workspace_id,
        account_id=submission.account_id,
        status=status,
        record=record,
        cancellation=cancellation,
    )
    return ResultEvent(
        submission.request_id, work.revision + 1, status, submission.key, moment, data, submission.traceparent
    )
