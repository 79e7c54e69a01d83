"""Reads a forwarder's public API with an API key: blocking, with the standard library, because it reads at most once a second.

ApiFault
├── ApiUnavailable   no answer, 429 or 5xx: it may pass
└── ApiRefused       any other answer that is not of the 2xx: asking again will not help
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, Request, build_opener

_SECONDS: Final = 10.0
_MAX_PROBLEM_BYTES: Final = 64 * 1024
_MAX_PAGE_BYTES: Final = 64 * 1024 * 1024
"""Larger than any page of 200 records."""


class ApiFault(Exception):
    """A response other than 2xx, or none. The message is for people."""


class ApiUnavailable(ApiFault):
    """It may answer in a moment."""


class ApiRefused(ApiFault):
    """Refused for good: the same request would get the same answer."""


class _NoRedirect(HTTPRedirectHandler):
    """Follows no redirect: an API key is sent only to the address that it was given for."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """None: the caller sees the redirect as the response."""


_OPENER: Final = build_opener(_NoRedirect)


@dataclass(frozen=True, slots=True)
class Api:
    """A forwarder at `url` (`http` or `https`, without `/api`), and the caller's credentials."""

    url: str
    workspace: str
    token: str = field(repr=False)

    def get(self, path: str, account: str, query: Mapping[str, str]) -> Mapping[str, Any]:
        """The members of the response, for an integration account. Blocks for at most 10 seconds between two bytes. Uses the
        environment's proxies. Raises `ApiFault`."""
        headers = {
            "Authorization": f"Bearer {self.token}",
            "workspaceId": self.workspace,
            "integrationAccountId": account,
            "Accept": "application/json",
            "User-Agent": "reservation-forwarder-listen",
        }
        address = f"{self.url}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            with _OPENER.open(Request(address, headers=headers), timeout=_SECONDS) as answer:  # noqa: S310 - the caller's
                body = answer.read(_MAX_PAGE_BYTES + 1)
            if len(body) > _MAX_PAGE_BYTES:
                raise ApiRefused(f"what answers at {self.url} is not a forwarder: more than {_MAX_PAGE_BYTES:,} bytes")
            members = json.loads(body)
        except HTTPError as error:
            with error:
                raise _fault(error) from None
        except (OSError, HTTPException) as error:
            raise ApiUnavailable(f"no answer from {self.url}: {getattr(error, 'reason', error)}") from error
        except (ValueError, RecursionError) as error:
            raise ApiRefused(f"what answers at {self.url} is not a forwarder: {error}") from error
        if not isinstance(members, dict):
            raise ApiRefused(f"what answers at {self.url} is not a forwarder")
        return members


def _fault(error: HTTPError) -> ApiFault:
    said = f"{error.code} {_problem_text(error)}".strip()
    passing = error.code >= HTTPStatus.INTERNAL_SERVER_ERROR or error.code == HTTPStatus.TOO_MANY_REQUESTS
    return ApiUnavailable(said) if passing else ApiRefused(said)


def _problem_text(error: HTTPError) -> str:
    """The problem's code and detail, or the reason phrase if the body is not a problem document."""
    try:
        problem = json.loads(error.read(_MAX_PROBLEM_BYTES))
        return f"{problem['code']}: {problem['detail']}"
    except (OSError, HTTPException, ValueError, LookupError, TypeError, RecursionError):
        return str(error.reason)
