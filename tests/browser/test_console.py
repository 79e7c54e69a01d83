"""The console in a real browser, on a whole forwarder in one process: by keyboard, with scripts and without, light and dark, wide
and narrow."""

from typing import Any

from playwright.async_api import Browser, Page, expect

from tests.support.browser import NEEDS_CHROMIUM, PATIENCE_MS, TOO_FAINT
from tests.support.deployment.deployment import Deployment, booking

pytestmark = NEEDS_CHROMIUM

HOSTILE = "<img src=x onerror=document.title='taken'>"
PAGES = (
    "",
    "/submissions",
    "/in-doubt",
    "/dead-letters",
    "/accounts",
    "/accounts/generic",
    "/topics",
    "/topics/reservations.results",
    "/webhooks",
    "/audit",
)

UNLABELLED = """() => [...document.querySelectorAll("input:not([type=hidden]), select, textarea")]
  .filter((each) => !each.labels.length).map((each) => each.outerHTML)"""


async def visitor(browser: Browser, deployment: Deployment, **how: Any) -> tuple[Page, list[str]]:
    """Somebody who has signed in, by the keyboard alone; and whatever their browser complains of, a breach of the policy too."""
    context = await browser.new_context(base_url=deployment.url("up"), **how)
    context.set_default_timeout(PATIENCE_MS)
    page, complaints = await context.new_page(), list[str]()
    page.on("console", lambda said: complaints.append(said.text) if said.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    await page.goto("/console/accounts/generic")
    await page.keyboard.type(deployment.token)  # the field has the focus
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/console/accounts/generic")
    return page, complaints


async def test_an_operator_sees_and_acts(deployment: Deployment, browser: Browser) -> None:
    page, complaints = await visitor(browser, deployment)
    await page.goto("/console")
    body = booking(1)
    body["guest"] |= {"name": f"{HOSTILE} Novak", "firstName": HOSTILE, "lastName": "Novak"}
    accepted = await deployment.submit("generic", body)
    assert accepted.status_code == 202, accepted.text
    request_id = accepted.json()["data"]["requestId"]
    await deployment.settled("generic", request_id)
    # It refreshes itself.
    await expect(page.locator("#accounts")).to_contain_text("generic", timeout=PATIENCE_MS)
    await expect(page.locator("#flow .figure").first).to_have_text("1", timeout=PATIENCE_MS)

    await page.goto("/console/submissions?guest=novak")
    await page.get_by_role("link", name=request_id).click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("CONFIRMED")
    await expect(page.locator("body")).not_to_contain_text("Novak")
    await page.get_by_role("button", name="Show the guest").click()
    await expect(page.locator("pre")).to_contain_text(HOSTILE)
    assert await page.title() != "taken"

    await page.goto("/console/accounts/generic")
    await page.get_by_role("button", name="Pause", exact=True).click()
    await expect(page.get_by_role("status").first).to_contain_text("The account is paused")
    await page.goto("/console/audit")
    await expect(page.locator("tbody tr").first).to_contain_text("account.pause")
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    assert complaints == []


async def test_every_page_can_be_read_by_everybody(deployment: Deployment, browser: Browser) -> None:
    await deployment.settled("generic", (await deployment.submit("generic", booking(1))).json()["data"]["requestId"])
    for scheme, width in (("light", 1280), ("dark", 390)):
        viewport = {"width": width, "height": 844}
        page, complaints = await visitor(browser, deployment, viewport=viewport, color_scheme=scheme)
        for path in PAGES:
            answer = await page.goto(f"/console{path}")
            assert answer is not None
            assert answer.status == 200
            await page.locator("[data-go-on]").wait_for(state="detached")
            assert await page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
            assert await page.evaluate(UNLABELLED) == [], path
            assert await page.evaluate(TOO_FAINT) == [], (path, scheme)
            assert await page.locator("main").count() == await page.locator("h1").count() == 1
            await page.keyboard.press("Tab")
            assert await page.evaluate("document.activeElement.textContent") == "Skip to the content"
        assert complaints == []


async def test_a_refused_key_is_said_within_a_narrow_window(deployment: Deployment, browser: Browser) -> None:
    context = await browser.new_context(base_url=deployment.url("up"), viewport={"width": 390, "height": 844})
    page = await context.new_page()
    await page.goto("/console")
    await page.keyboard.type("no key")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("not a valid live key", timeout=PATIENCE_MS)
    assert await page.evaluate("document.documentElement.scrollWidth") <= 390
    assert await page.evaluate(TOO_FAINT) == []


async def test_it_works_without_scripts(deployment: Deployment, browser: Browser) -> None:
    page, _ = await visitor(browser, deployment, java_script_enabled=False)
    await page.get_by_role("button", name="Pause", exact=True).click()
    await expect(page.get_by_role("status").first).to_contain_text("The account is paused")
    (account,) = [each for each in await deployment.command("account", "list") if each["id"] == "generic"]
    assert account["paused"] is True
