"""Calls from the page: the first visit, the demo, the playground, and both under a path prefix."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.browser.prefix import prefixed
from tests.browser.upstream import odd_fleet, odd_upstream
from tests.browser.visit import Visit
from tests.support.browser.installation import Installation, installed

SENT = "() => Number(document.querySelector('.demo p').textContent.match(/\\d+/))"  # calls of the demo
SAVED = """() => [...document.querySelectorAll(".stat")].some(each =>
  each.innerText.startsWith("Saved by racing") && /\\d m?s to \\d/.test(each.innerText))"""  # with its interval
EXCUSED = r"with one attempt \(.*no rival worth it (\d+)"
SOONER = """async saved => {
  const { ms } = await import("./page/lib/format.js");
  return `${ms(saved)} sooner than the first choice alone`;
}"""
ROWS = "least => document.querySelectorAll('main tbody tr').length >= least"


def one_model(url: str) -> dict[str, Any]:
    """Return the settings of a gateway with a real provider, so that it is not the demo, and one model."""
    settings = odd_fleet(url)
    return settings | {"models": {"short": settings["models"]["short"]}}


def test_a_first_visit_says_what_to_do_and_sends_three_calls(
    visit: Callable[..., Visit], tmp_path: Path, migrated_file: Path
) -> None:
    with odd_upstream() as url, installed(tmp_path / "gateway", migrated_file, **one_model(url)) as fresh:
        seen = visit(fresh)
        page = seen.open("live")
        page.get_by_role("heading", name="No call has come yet").wait_for()
        assert f"{fresh.url}/v1" in page.locator("main").inner_text()
        assert seen.axe() == []
        page.get_by_role("button", name="Send three calls").click()
        page.wait_for_function(ROWS, arg=3)
        listed = page.locator("main tbody tr a").evaluate_all("all => all.map(each => each.hash.split('/').pop())")
        fresh.stored(listed)
        assert len(listed) == 3
        assert seen.complaints == []


def test_the_demo_shows_a_race_without_a_click_and_what_racing_saved_after_one(
    fresh: Installation, visit: Callable[..., Visit]
) -> None:
    seen = visit(fresh, calm=True)
    page = seen.open("live")
    page.get_by_role("heading", name="The last race").wait_for()
    assert page.locator(".stage .timeline li").count() >= 2
    assert page.locator("main button.primary").count() == 1
    assert seen.axe() == []
    page.get_by_role("button", name="Send 3 calls a second").click()
    page.wait_for_function(SAVED)
    assert page.evaluate(SENT) <= 120  # of forty seconds
    assert page.locator(".stage .timeline").count() == 0  # races move there
    page.get_by_role("button", name="Send more").wait_for()
    assert page.evaluate(SENT) == 180
    fresh.await_rows("select id from calls", 181)  # and the one that was there without a click
    said = page.locator(".demo p").inner_text()
    excused = int(match[1]) if (match := re.search(EXCUSED, said)) else 0
    [(alone,)] = fresh.rows("select count(*) from calls where launched = 1")
    assert alone - excused <= 0.05 * 180, said
    assert seen.complaints == []


def test_the_playground_shows_answer_race_and_cost(demo: Installation, visit: Callable[..., Visit]) -> None:
    seen = visit(demo)
    page = seen.open("playground")
    page.get_by_label("Prompt").fill("It's 5 o'clock: why race?")
    code = page.get_by_label("The same call for a program").inner_text()
    assert f"{demo.url}/v1/chat/completions" in code
    page.get_by_role("button", name="Send").click()
    call_id = str(page.get_by_role("link", name="Open the call").get_attribute("href")).rpartition("/")[2]
    page.wait_for_selector(".stats")
    assert len(page.locator(".reply").inner_text()) > 20
    launched, status = demo.ended(call_id)
    assert status == 200
    page.wait_for_function("all => document.querySelectorAll('.timeline li').length === all", arg=launched)
    said = page.locator("section[aria-labelledby=play-race] header p").inner_text()
    attempts = f"from attempts where replace(call_id, '-', '') = '{call_id.replace('-', '')}'"
    demo.await_rows(f"select id {attempts}", launched)
    [(at_ms,)] = demo.rows(f"select launch_offset_ms + token_ms {attempts} and role = 'primary'")
    [(ttft_ms,)] = demo.rows(f"select ttft_ms from calls where replace(id, '-', '') = '{call_id.replace('-', '')}'")
    if at_ms is None:  # it was cut, or failed
        assert "the first choice " in said
    elif at_ms > ttft_ms + 0.5:
        assert said == page.evaluate(SOONER, at_ms - ttft_ms)
    else:
        assert said.startswith("the first choice answered")
    assert seen.complaints == []


def test_it_works_under_a_prefix(demo: Installation, visit: Callable[..., Visit]) -> None:
    with prefixed(demo.url) as url:
        seen = visit(url)
        for view in ("leaderboard", "history", "calls", "playground"):
            seen.open(view)
            seen.settle()
        page = seen.page
        assert f"{url}/v1/chat/completions" in page.get_by_label("The same call for a program").inner_text()
        page.get_by_role("button", name="Send").click()
        page.get_by_role("link", name="Open the call").click()
        page.wait_for_selector(".timeline li")
        page.goto(f"{url}/docs")
        page.wait_for_selector("#listCalls")
        assert seen.complaints == []
