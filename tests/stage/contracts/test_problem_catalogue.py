"""The catalogue of problems: whole, used, readable on the service and in docs/reference/problems.md."""

import re
from pathlib import Path
from typing import Final

from forwarder.reservation import problems as catalogue
from forwarder.reservation.problems import CATALOGUE, CHAPTERS, FieldFault, Problem, ProblemType
from tests.stage.contracts.problem_codes import fault_codes, made_by_hand, used
from tests.support.stages.http_stages import Stages, stages
from tools.contracts.pages.problem_pages import EXAMPLES, FAULTS, problems_markdown

NO_LONGER_SENT: Final = {"transaction_reused"}
"""Kept for those who meet one in an answer or an event of an earlier release, whose schemas name it."""


def test_every_problem_comes_from_the_catalogue() -> None:
    assert made_by_hand() == []


def test_every_problem_of_the_catalogue_is_used() -> None:
    assert used() == set(CATALOGUE) - NO_LONGER_SENT


def test_a_problem_that_is_no_longer_sent_says_so() -> None:
    for code in NO_LONGER_SENT:
        assert CATALOGUE[code].when.startswith("No longer sent: ")


def test_every_problem_has_its_chapter_and_its_own_code() -> None:
    defined = [one for one in vars(catalogue).values() if isinstance(one, ProblemType)]
    listed = [one for chapter in CHAPTERS for one in chapter.problems]
    assert sorted(one.code for one in listed) == sorted(one.code for one in defined)
    assert len({one.code for one in listed}) == len(listed)
    assert len({one.title for one in listed}) == len(listed)


def test_a_problem_says_what_it_means_and_what_to_do() -> None:
    for one in CATALOGUE.values():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", one.code)
        assert 400 <= one.status <= 599
        assert not one.title.endswith(".")
        for text in (one.when, one.remedy):
            assert text[0].isupper() or text[0] == "`"
            assert text.endswith(".")
            assert "|" not in text  # which would break the table


def test_a_problem_is_read_back_as_it_was_written() -> None:
    fault = FieldFault("/roomId", "missing", "is missing.")
    problem = catalogue.PMS_REFUSED.problem("No.", f"rsv_{'a' * 32}", faults=[fault], extra={"similarTo": "another"})
    assert Problem.from_json(problem.as_json()) == problem


def test_every_fault_of_a_request_is_explained() -> None:
    assert fault_codes() == set(FAULTS)


async def test_the_type_of_every_problem_leads_to_its_page() -> None:
    house: Stages
    async with stages() as house:
        listed = (await house.client.get("/problems")).text
        for one in CATALOGUE.values():
            address = one.problem("Something.").as_json()["type"]
            assert f'href="{address}"' in listed
            page = await house.client.get(address, headers={"Authorization": ""})
            assert page.status_code == 200
            assert page.headers["content-type"] == "text/html; charset=utf-8"
            assert one.code in page.text
            told = (await house.client.get(address, headers={"Accept": "application/json"})).json()
            assert (told["code"], told["status"], told["when"]) == (one.code, one.status, one.when)


async def test_a_code_that_does_not_exist_has_no_page() -> None:
    house: Stages
    async with stages() as house:
        answer = await house.client.get("/problems/<script>")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_the_page_for_readers_has_every_code() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "reference" / "problems.md"
    assert page.read_text(encoding="utf-8") == problems_markdown()
    for code in (*CATALOGUE, *FAULTS):
        assert f"| `{code}`" in problems_markdown()


def test_each_problem_that_a_caller_can_fix_has_an_example() -> None:
    passes = {
        "too_many_bad_tokens",
        "address_not_allowed",
        "test_mode_unavailable",
        "rate_limited",
        "headers_too_large",
    }
    passes |= {"body_timed_out", "head_timed_out", "transaction_reused"}
    theirs = {"Authentication and limits", "The request", "Rules of the integration"}
    fixable = {one.code for chapter in CHAPTERS if chapter.title in theirs for one in chapter.problems} - passes
    assert fixable <= EXAMPLES.keys() <= CATALOGUE.keys()
    for wrong, right in EXAMPLES.values():
        assert wrong != right
