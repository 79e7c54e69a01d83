"""Who may do what: from a request's headers to the caller, or to the problem that refuses it. No web framework, no I/O of its own.

Whoever has no key learns nothing. Whoever has one learns of other workspaces neither that they exist nor what is theirs: the same
answer is given for what is another's and for what is not there.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from forwarder.reservation.mode import is_test, shadow_id
from forwarder.reservation.problem import Problem
from forwarder.reservation.problems import requests
from forwarder.tenancy.port import Account, ApiKey, Directory, RateLimit


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is calling, and the integration account that it is for: of a test key, the shadow of the one that was named."""

    workspace_id: str
    account: Account
    key_id: str
    limit: RateLimit | None = None


async def authenticate(directory: Directory, headers: Mapping[str, str]) -> Caller | Problem:
    """The caller that section 5's three headers make out. `headers` answers to lower-case names, in whatever case they came.

    Raises `TenancyUnavailable`.
    """
    token = bearer_token(headers.get("authorization", ""))
    key = None if token is None else await directory.key(token)
    if key is None:
        return _unauthenticated(given=token is not None)
    refused = _refused(key, headers)
    if refused is not None:
        return refused
    account_id = headers.get("integrationaccountid", "").strip()
    if not account_id:
        return _missing_header("integrationAccountId", "the identifier of the integration account to use")
    if is_test(account_id):
        return _account_not_found()  # nobody names a shadow: a test key names the account that casts it
    account = await directory.account(shadow_id(account_id) if key.test else account_id)
    if account is None or account.workspace_id != key.workspace_id:
        return _account_not_found()
    return Caller(key.workspace_id, account, key.id, key.limit)


async def authenticate_workspace(directory: Directory, headers: Mapping[str, str]) -> ApiKey | Problem:
    """The key of a caller who acts for a whole workspace: no account is asked for, and one that is named is passed over.

    Raises `TenancyUnavailable`.
    """
    token = bearer_token(headers.get("authorization", ""))
    key = None if token is None else await directory.key(token)
    if key is None:
        return _unauthenticated(given=token is not None)
    return _refused(key, headers) or key


def _refused(key: ApiKey, headers: Mapping[str, str]) -> Problem | None:
    """Why a key that is in force opens nothing here."""
    workspace_id = headers.get("workspaceid", "").strip()
    if not workspace_id:
        return _missing_header("workspaceId", "the identifier of the workspace that the API key belongs to")
    return None if workspace_id == key.workspace_id else _wrong_workspace()


def bearer_token(authorization: str) -> str | None:
    """The token in the value of an `Authorization` header; None where that is missing or of another form."""
    match authorization.split():
        case [scheme, token] if scheme.lower() == "bearer":
            return token
        case _:
            return None


def _unauthenticated(*, given: bool) -> Problem:
    said = "The API key is unknown or was revoked." if given else "The Authorization header is missing or malformed."
    return requests.UNAUTHENTICATED.problem(f"{said} Send it as: Authorization: Bearer <API key>.")


def _missing_header(name: str, meaning: str) -> Problem:
    return requests.MISSING_HEADER.problem(f"Every request carries the header {name}: {meaning}.")


def _wrong_workspace() -> Problem:
    return requests.WRONG_WORKSPACE.problem(
        "The API key does not give access to the workspace named by the workspaceId header. "
        "Name the workspace that the key was made for.",
    )


def _account_not_found() -> Problem:
    return requests.ACCOUNT_NOT_FOUND.problem(
        "The workspace has no integration account with the identifier in the integrationAccountId header.",
    )
