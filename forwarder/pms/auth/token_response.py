"""What an authorization server's answer comes to when there is no access token in it.

Private to the seam. Whatever it is, nothing was asked of the PMS yet.
"""

from datetime import datetime
from http import HTTPStatus

import httpx

from forwarder.pms.http.failure import NotSent, harmless, unexpected
from forwarder.pms.http.pace import hold_off_asked

_NOT_LET_IN = {HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}


def no_token(response: httpx.Response, now: datetime) -> NotSent:
    """Why there is none. RFC 6749 (section 5.2) words a credential that is not accepted as 400 or 401."""
    status = response.status_code
    if status in _NOT_LET_IN:
        detail = f"The PMS gives no access token for the account's credential (HTTP {status})."
        return NotSent("pms_unauthorized", detail)
    outcome = harmless(unexpected(response, now))
    wait = outcome.retry_after_seconds or hold_off_asked(response, now) or None
    return NotSent(outcome.reason, outcome.detail, retry_after_seconds=wait)
