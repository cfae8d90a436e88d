"""Calls from the page: the first visit, the playground, and both under a path prefix."""

from collections.abc import Callable

from tests.browser.installation import Installation
from tests.browser.prefix import prefixed
from tests.browser.visit import Visit

ROWS = "least => document.querySelectorAll('main tbody tr').length >= least"


def test_a_first_visit_says_what_to_do_and_sends_three_calls(fresh: Installation, visit: Callable[..., Visit]) -> None:
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
