"""Checks of ours for schemathesis, which loads this file: whatever is refused is a problem of the catalogue, and for a reason.

Run by tests/journey/contracts/test_http_contract.py.
"""

from typing import Any, Final

import schemathesis
from schemathesis import Case, CheckContext, GenerationMode, HookContext, Response

from forwarder.reservation.problems import CATALOGUE

_PROBLEM = "application/problem+json"
# What JSON Schema cannot say: a body may break these and be of its schema all the same.
_OF_AN_ADDRESS = {"not_a_url", "https_needed", "address_not_public", "credentials_in_url"}
_BETWEEN_FIELDS = {"departure_not_after_arrival", "stay_too_long"}
_IMPLAUSIBLE = {"arrival_in_the_past", "fewer_than_adults_and_children", "guest_without_name", "impossible_time"}
_NOT_OF_THE_BODY = {"idempotency_key_reused", "card_required", "card_invalid", "website_id_required", "no_rooms"}


_WHOSE: Final = {"workspaceId", "integrationAccountId"}
"""Headers that are given as they have to be, whatever is generated for them."""


@schemathesis.hook
def filter_case(_context: HookContext, case: Case[Any]) -> bool:
    """Without those that would be refused for such a header, which is not sent."""
    return case.meta is None or getattr(case.meta.phase.data, "parameter", None) not in _WHOSE


@schemathesis.check
def refusals_are_problems(_context: CheckContext, response: Response, _case: Case[Any]) -> None:
    """Every status of an error comes with a problem, its status and a code of the catalogue."""
    if response.status_code < 400:
        return
    assert response.headers["content-type"] == [_PROBLEM], response.headers["content-type"]
    problem = response.json()
    assert problem["status"] == response.status_code
    assert CATALOGUE[problem["code"]].title == problem["title"]
    assert problem["type"] == f"/problems/{problem['code']}"


@schemathesis.check
def what_is_of_the_schema_is_valid(_context: CheckContext, response: Response, case: Case[Any]) -> None:
    """What keeps to the schemas is refused as invalid only for a rule between fields."""
    if response.status_code not in {400, 422} or case.meta is None:
        return
    if case.meta.generation.mode is not GenerationMode.POSITIVE:
        return
    problem = response.json()
    # Which accounts a workspace has, no schema says.
    said = [fault for fault in problem.get("errors", ()) if fault["pointer"] != "/integrationAccountIds"]
    faults = {fault["code"] for fault in said}
    if problem.get("errors") and not said:
        return
    if response.status_code == 400:
        assert (problem["code"], faults) == ("invalid_query", {"contradictory"}), problem
        return
    assert problem["code"] in _NOT_OF_THE_BODY or (
        faults and faults <= _BETWEEN_FIELDS | _IMPLAUSIBLE | _OF_AN_ADDRESS
    ), problem
