"""The pages that the service shows: well formed, with no link into nothing, under a policy that keeps what is typed in here."""

import json
import re
from html.parser import HTMLParser

import httpx
import pytest

from forwarder.reservation.problems import VALIDATION_FAILED
from tests.support.cases import for_each
from tests.support.contracts.http_contract import HttpContract
from tests.support.stages.http_stages import Stages, stages
from tools.contracts.openapi import openapi
from tools.contracts.pages.docs_page import docs_page, docs_script
from tools.contracts.pages.guides import guide_pages, guides_page
from tools.contracts.pages.page import prose
from tools.contracts.pages.problem_pages import problem_page, problems_page

_VOID = {"meta", "br", "link", "hr"}
GUIDES = guide_pages()
READ = {"problems": problems_page(), "one problem": problem_page(VALIDATION_FAILED), "guides": guides_page(), **GUIDES}
"""Those that run nothing."""


class Page(HTMLParser):
    """Reads a page strictly: what is opened is closed, in its order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.identifiers: list[str] = []
        self.sources: list[str] = []
        self.tags: set[str] = set()
        self.words = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attributes:
            assert not name.startswith("on"), "the policy runs no such thing"
            if name == "src":
                self.sources.append(value or "")
            if name == "href":
                self.links.append(value or "")
            if name == "id":
                self.identifiers.append(value or "")
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        assert not data.strip() or self.open[-1:] != ["script"], "the policy runs no such thing"
        self.words += data


@for_each("name", READ)
def test_a_page_to_read_is_well_formed_and_fetches_nothing(name: str) -> None:
    page = Page(READ[name])
    assert not page.tags & {"script", "link", "img", "iframe"}
    assert "@import" not in READ[name]
    assert not [link for link in page.links if link.startswith("http://")]


@for_each("name", GUIDES)
def test_a_guides_links_lead_somewhere(name: str) -> None:
    pages = {f"/docs/guides/{guide}": Page(text) for guide, text in GUIDES.items()}
    contract = HttpContract()
    for link in pages[f"/docs/guides/{name}"].links:
        if link.startswith("https://"):
            continue
        path, _, fragment = link.partition("#")
        there = pages.get(path or f"/docs/guides/{name}")
        assert there or contract.operation("GET", path), link
        assert not fragment or (there and fragment in there.identifiers), link


def test_all_guides_are_led_to() -> None:
    assert {f"/docs/guides/{name}" for name in GUIDES} <= set(Page(guides_page()).links)


def test_the_page_of_the_contract_has_scripts_of_this_service_alone() -> None:
    page = Page(docs_page(openapi()))
    assert page.sources == ["/docs/scalar.js", "/docs/docs.js"]
    assert "/docs/guides" in page.links


def test_every_operation_and_every_shape_has_an_address_that_lasts() -> None:
    document = openapi()
    found = re.search(r"const places = (\{.*\});", docs_script(document))
    assert found
    places = json.loads(found[1])
    operations = [one["operationId"] for methods in document["paths"].values() for one in methods.values()]
    assert sorted(places) == sorted([*operations, *document["components"]["schemas"]])
    assert {"submitBookingEngineReservation", "Address"} <= set(places), "refusals and answers lead there"


def test_text_is_never_read_as_html() -> None:
    assert prose("a < b `<i>` [x](/problems/y)") == ('a &lt; b <code>&lt;i&gt;</code> <a href="/problems/y">x</a>')


async def test_everybody_is_served_them_and_no_script_but_ours_runs() -> None:
    house: Stages
    async with stages() as house:
        house.client.headers.clear()
        for path in ("/docs", "/docs/guides/first-steps", "/docs/scalar.js", "/docs/docs.js", "/asyncapi.yaml"):
            answer = await house.client.get(path, headers={"Accept-Encoding": "gzip"})
            assert (answer.status_code, answer.headers["content-encoding"]) == (200, "gzip"), path
            assert answer.headers["x-content-type-options"] == "nosniff"
            known = {"If-None-Match": answer.headers["etag"], "Accept-Encoding": "gzip"}
            assert (await house.client.get(path, headers=known)).status_code == 304, path
            assert (await house.client.head(path)).status_code == 200
        policies = {
            path: (await house.client.get(path)).headers["content-security-policy"] for path in ("/docs", "/problems")
        }
        assert (await house.client.get("/docs/nothing.js")).status_code == 404
    assert "script-src" not in policies["/problems"]
    (scripts,) = [each for each in policies["/docs"].split("; ") if each.startswith("script-src")]
    assert scripts == "script-src 'self'"
    for policy in policies.values():
        assert policy.startswith("default-src 'none'")
        assert "http" not in policy


@pytest.mark.parametrize(
    ("accept", "status"),
    [("text/html,application/xhtml+xml,*/*;q=0.8", 303), ("*/*", 200), ("application/json", 200), (None, 200)],
)
async def test_the_start_leads_browsers_to_the_docs_and_tells_programs_where_things_are(
    accept: str | None, status: int
) -> None:
    house: Stages
    async with stages() as house:
        house.client.headers = httpx.Headers({} if accept is None else {"Accept": accept})
        answer = await house.client.get("/")
        assert answer.status_code == status
        if status == 303:
            assert answer.headers["location"] == "/docs"
        else:
            for path in set(answer.json().values()) - {answer.json()["service"]}:
                assert (await house.client.get(path)).status_code == 200, path


@for_each("path", ["/api/v1/vrs/reservations/bulk", "/api/v1/vrs/reservations/booking-engine"])
@for_each("method", ["GET", "HEAD", "DELETE"])
async def test_what_only_takes_post_says_so(path: str, method: str) -> None:
    house: Stages
    async with stages() as house:
        refused = await house.client.request(method, path)
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
