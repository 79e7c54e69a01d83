"""The page of the contract in a real browser, on a whole forwarder: it is read and searched, and what is tried reaches the service;
nothing asks another host for anything, and the policy that is served forbids nothing that the page does."""

import re
from collections.abc import Sequence

import pytest
from playwright.async_api import Browser, Page, expect

from tests.support.browser import NEEDS_CHROMIUM, PATIENCE_MS, TOO_FAINT
from tests.support.deployment.deployment import Deployment

pytestmark = NEEDS_CHROMIUM


async def reader(browser: Browser, deployment: Deployment, scheme: str, width: int) -> tuple[Page, list[str]]:
    """Somebody who reads; and what their browser complains of, and was asked to fetch from elsewhere."""
    here = deployment.url("up")
    context = await browser.new_context(
        base_url=here, color_scheme="dark" if scheme == "dark" else "light", viewport={"width": width, "height": 844}
    )
    context.set_default_timeout(PATIENCE_MS)
    page, complaints = await context.new_page(), list[str]()

    page.on("console", lambda said: complaints.append(said.text) if said.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda asked: None if asked.url.startswith((here, "data:")) else complaints.append(asked.url))
    return page, complaints


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
async def test_it_can_be_read_by_everybody(deployment: Deployment, browser: Browser, scheme: str, width: int) -> None:
    page, complaints = await reader(browser, deployment, scheme, width)
    await page.goto("/")
    await page.wait_for_url("**/docs")
    await expect(page.get_by_role("heading", name="Reservation forwarder")).to_be_visible()
    await page.goto("about:blank")
    await page.goto("/docs#submitReservation")
    await expect(page.get_by_role("heading", name="Submit a reservation", exact=True)).to_be_in_viewport()
    assert await page.evaluate("document.documentElement.scrollWidth") <= width
    assert await page.evaluate(TOO_FAINT) == []
    for path in ("/docs/guides", "/docs/guides/submit-reservations", "/problems"):
        await page.goto(path)
        assert await page.evaluate("document.documentElement.scrollWidth") <= width, path
        assert await page.evaluate(TOO_FAINT) == [], path
    assert complaints == []


async def test_it_is_searched_and_shows_samples_in_three_languages(deployment: Deployment, browser: Browser) -> None:
    page, complaints = await reader(browser, deployment, "light", 1280)
    await page.goto("/docs#submitReservation")
    heading = page.get_by_role("heading", name="Submit a reservation", exact=True)
    await expect(heading).to_be_in_viewport()
    samples = page.locator("section", has=heading).last
    for language, words in (("Python", "httpx.post"), ("JavaScript", "await fetch"), ("curl", "curl -s")):
        await samples.get_by_role("button", name=re.compile("^Change code sample language")).click()
        await page.get_by_role("option", name=language).click()
        await expect(samples.get_by_text(words).first).to_be_visible()
    await page.get_by_role("button", name="Search").first.click()
    await page.get_by_role("combobox", name=re.compile("")).last.fill("rotate")
    await page.get_by_role("option", name=re.compile("Replace a webhook")).first.click()
    await expect(page.get_by_role("heading", name=re.compile("Replace a webhook"))).to_be_in_viewport()
    assert complaints == []


async def test_what_is_tried_there_reaches_the_service(deployment: Deployment, browser: Browser) -> None:
    await deployment.add_account("demo-generic")
    page, complaints = await reader(browser, deployment, "light", 1280)
    await page.goto("/docs#submitReservation")
    await page.get_by_placeholder("Token").first.fill(deployment.token)
    await page.get_by_role("button", name="Test Request (post /api/v1/vrs/reservations)", exact=True).first.click()
    client = page.get_by_role("dialog")
    async with page.expect_response(lambda answer: "/api/v1/vrs/reservations" in answer.url) as answered:
        await client.get_by_role("button", name=re.compile("^Send post")).click()
    assert (await answered.value).status == 200
    await expect(client.get_by_text("wouldSend").first).to_be_visible()
    assert await page.evaluate(TOO_FAINT) == []
    assert await kept(page) == [], "the token stays in the page"
    assert complaints == []


async def test_the_real_responses_are_shown_before_that_of_a_dry_run(deployment: Deployment, browser: Browser) -> None:
    page, complaints = await reader(browser, deployment, "light", 1280)
    await page.goto("/docs#submitReservation")
    tabs = page.get_by_role("tab")
    await expect(tabs.first).to_have_text(re.compile("201"))
    assert complaints == []


async def kept(page: Page) -> Sequence[str]:
    """The names under which the browser keeps a token beyond the page."""
    found: Sequence[str] = await page.evaluate(
        "() => [localStorage, sessionStorage].flatMap((store) => Object.keys(store).filter("
        "(name) => store[name].includes('fwd_live_')))"
    )
    return found
