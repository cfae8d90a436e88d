"""The page when it is looked at for long: lists that grow, streams that end, and what is refreshed under a reader."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.browser.visit import Visit
from tests.support.browser.installation import MODEL, Installation

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

PAGE = 400  # rows of a page of calls
NUMBERS = "all => all.map(each => Number(each.hash.split('-').pop()))"  # of calls, by their links
FOCUSED = "() => document.activeElement.innerText"


class Calls:
    """Numbered calls, of which ``newest`` is the last one, told page by page."""

    def __init__(self, newest: int) -> None:
        self.newest = newest
        self._began = datetime.now(UTC)

    def tell(self, route: "Route") -> None:
        """Answer as ``/api/calls`` does."""
        [after] = parse_qs(urlsplit(route.request.url).query).get("after", [str(self.newest + 1)])
        numbers = range(int(after) - 1, max(0, int(after) - 1 - PAGE), -1)
        rows = [self._row(number) for number in numbers]
        route.fulfill(json={"data": rows, "next": str(numbers[-1]) if numbers[-1] > 1 else None, "sql": ""})

    def _row(self, number: int) -> dict[str, Any]:
        at = self._began - timedelta(hours=1) + timedelta(milliseconds=number)
        return {"id": f"call-{number}", "started_at": at.isoformat(), "model": MODEL, "status_code": 200}


def listed(page: "Page") -> list[int]:
    return list(page.locator("main tbody tr a").evaluate_all(NUMBERS))


@pytest.mark.parametrize("more", [390, 2000], ids=["all on the next page", "more than a page"])
def test_the_list_of_calls_has_no_gap_and_an_end_however_many_come(
    demo: Installation, visit: Callable[..., Visit], more: int
) -> None:
    calls = Calls(PAGE)
    page = visit(demo).page
    page.route("**/api/calls?*", calls.tell)
    page.clock.install()
    page.goto(f"{demo.url}/#/calls")
    page.locator(f"main tbody a[href$='call-{calls.newest}']").wait_for()
    for _ in range(4):
        calls.newest += more
        page.clock.fast_forward("00:05")
        page.locator(f"main tbody a[href$='call-{calls.newest}']").wait_for()
        numbers = listed(page)
        assert numbers == list(range(calls.newest, calls.newest - len(numbers), -1))
        assert len(numbers) <= 1000
    last = listed(page)[-1]
    page.get_by_role("button", name="Older calls").click()
    page.locator(f"main tbody a[href$='call-{last - 1}']").wait_for()


def test_what_somebody_reads_in_the_list_of_calls_stays_until_they_ask_for_the_newest(
    demo: Installation, visit: Callable[..., Visit]
) -> None:
    calls = Calls(PAGE)
    page = visit(demo).page
    page.route("**/api/calls?*", calls.tell)
    page.clock.install()
    page.goto(f"{demo.url}/#/calls")
    page.locator("main tbody tr").first.hover()
    calls.newest += 2
    page.clock.fast_forward("00:05")
    page.get_by_role("button", name="Show 2 new calls").wait_for()
    calls.newest += 10 * PAGE
    page.clock.fast_forward("00:05")
    newest = page.get_by_role("button", name="Show the newest calls")
    newest.wait_for()
    assert listed(page)[0] == PAGE
    newest.click()
    assert listed(page) == list(range(calls.newest, calls.newest - PAGE, -1))
    assert newest.count() == 0


def test_live_connects_again_where_a_proxy_answers_for_a_gateway_that_is_away(
    demo: Installation, visit: Callable[..., Visit]
) -> None:
    page = visit(demo).page
    sessions: list[Any] = []

    def look(route: "Route") -> None:  # the page begins; then the gateway goes
        sessions.append(route)
        if len(sessions) == 1:
            route.continue_()
        else:
            route.fulfill(status=502, body="<h1>Bad gateway</h1>")

    page.route("**/api/session", look)
    page.route("**/api/live*", lambda route: route.fulfill(status=502, body="<h1>Bad gateway</h1>"))
    page.clock.install()
    page.goto(f"{demo.url}/#/live")
    lost = page.locator("main .chip").get_by_text("connection lost, trying again")
    lost.wait_for()
    assert len(sessions) >= 2
    page.unroute("**/api/session")
    page.unroute("**/api/live*")
    page.clock.fast_forward("00:31")
    lost.wait_for(state="detached")
    assert page.get_by_role("alert").count() == 0


def test_a_stream_is_not_opened_again_for_a_view_that_was_left(demo: Installation, visit: Callable[..., Visit]) -> None:
    seen = visit(demo)
    page = seen.page
    streams: list[Any] = []
    held: list[Any] = []

    def end(route: "Route") -> None:
        streams.append(route)
        route.fulfill(status=502, body="")

    seen.open("configuration")
    page.route("**/api/live*", end)
    page.route("**/api/session", lambda route: held.append(route))  # noqa: PLW0108 - Playwright sets attributes on it
    page.clock.install()
    with page.expect_request("**/api/session"):
        seen.open("live")
    seen.open("configuration")
    with page.expect_response("**/api/session"):
        held[0].continue_()
    seen.settle()
    page.clock.fast_forward("00:31")
    seen.settle()
    assert len(streams) == 1


def test_what_is_open_stays_open_and_what_has_the_focus_keeps_it_when_a_replay_comes_again(
    demo: Installation, visit: Callable[..., Visit]
) -> None:
    def see(route: "Route") -> None:
        response = route.fetch()
        told = response.json()
        told["data"][0] |= {"is_enough": False}
        told["data"][0]["recommended"] |= {"yaml": "audit_share: 0.2"}
        route.fulfill(response=response, json=told)

    seen = visit(demo)
    page = seen.page
    page.route("**/api/replay*", see)
    page.clock.install()
    page.goto(f"{demo.url}/#/replay")
    page.locator("summary", has_text="as YAML").click()
    with page.expect_response("**/api/replay*"):
        page.clock.fast_forward("00:16")
    seen.settle()
    assert page.get_by_text("audit_share: 0.2").is_visible()
    page.get_by_role("button", name="Month").focus()
    with page.expect_response("**/api/replay*"):
        page.keyboard.press("Enter")
    seen.settle()
    assert page.evaluate(FOCUSED) == "Month"
