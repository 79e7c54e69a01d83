"""The page of the contract: whole in itself, well formed, and all of the contract."""

from html.parser import HTMLParser
from typing import get_args

import pytest

from forwarder.reservation.problems.requests import VALIDATION_FAILED
from forwarder.reservation.request import Country
from tests.support.stages.http_stages import Stages, stages
from tools.contracts.openapi.document import openapi
from tools.contracts.pages.contract_page import contract_page
from tools.contracts.pages.page import paragraphs, prose
from tools.contracts.pages.problem_pages import problem_page, problems_page

_VOID = {"meta", "br"}


class Page(HTMLParser):
    """Reads a page strictly: what is opened is closed, in its order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.identifiers: list[str] = []
        self.tags: set[str] = set()
        self.words = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attributes:
            assert name not in {"src", "onclick", "style"}
            if name == "href":
                self.links.append(value or "")
            if name == "id":
                self.identifiers.append(value or "")
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.mark.parametrize("text", [contract_page(openapi()), problems_page(), problem_page(VALIDATION_FAILED)])
def test_a_page_is_well_formed_and_fetches_nothing(text: str) -> None:
    page = Page(text)
    assert not page.tags & {"script", "link", "img", "iframe"}
    assert "http://" not in "".join(page.links)
    assert "https://" not in "".join(page.links)
    assert "url(" not in text
    assert "@import" not in text


def test_the_list_of_countries_that_a_refusal_points_to_is_there_and_whole() -> None:
    text = contract_page(openapi())
    address = text[text.index('<div id="Address">') : text.index('<div id="BookingEngineItem">')]
    assert all(f"<code>{code}</code>" in address for code in get_args(Country))


def test_the_page_has_every_operation_and_every_shape_and_no_link_into_nothing() -> None:
    document = openapi()
    page = Page(contract_page(document))
    described = [*document["paths"].values(), *document["webhooks"].values()]
    operations = [one["operationId"] for methods in described for one in methods.values()]
    assert sorted(page.identifiers) == sorted([*operations, *document["components"]["schemas"]])
    for link in page.links:
        assert link.removeprefix("#") in page.identifiers or link in document["paths"] or link.startswith("/problems/")
    for path in (*document["paths"], *document["webhooks"]):
        assert path in page.words
    assert "Idempotency-Key" in page.words


def test_text_is_never_read_as_html() -> None:
    assert prose("a < b `<i>` [x](/problems/y)") == ('a &lt; b <code>&lt;i&gt;</code> <a href="/problems/y">x</a>')
    assert paragraphs("one\ntwo\n\n- a\n  b\n- c") == "<p>one two</p><ul><li>a b</li><li>c</li></ul>"


async def test_it_is_served_to_everybody_and_runs_nothing() -> None:
    house: Stages
    async with stages() as house:
        answer = await house.client.get("/docs", headers={"Authorization": ""})
        head = await house.client.head("/docs")
    assert answer.text == contract_page(openapi())
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert head.headers["content-length"] == answer.headers["content-length"]
