"""History: any range of time, by dragging over a plot or by fields, in the address; Back leaves it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.visit import Visit
from tests.support.browser.installation import MODEL, Installation

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

LONG = "openrouter/meta-llama/llama-3.3-70b-instruct-with-a-name-that-goes-on"


def dragged(page: "Page") -> None:
    """Drag over the second quarter of the first plot."""
    box = page.locator(".history .u-over").first.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 4, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, y, steps=5)
    page.mouse.up()


def test_a_drag_over_a_plot_shows_that_time_until_back(demo: Installation, visit: Callable[..., Visit]) -> None:
    seen = visit(demo)
    seen.page.goto(f"{demo.url}/#/history?window=24h&model={MODEL}")
    page = seen.page
    page.wait_for_selector(".history .u-over")
    seen.settle()
    with page.expect_response(lambda response: "/api/history?" in response.url and "from=" in response.url) as told:
        dragged(page)
    shown = told.value.json()
    lasts = datetime.fromisoformat(shown["to"]) - datetime.fromisoformat(shown["from"])
    assert timedelta(hours=5) < lasts < timedelta(hours=7)
    assert "from=" in page.url
    page.get_by_text("Shown: ").wait_for()
    assert page.get_by_role("group", name="Time", exact=True).first.locator("[aria-pressed=true]").count() == 0
    page.go_back()
    page.wait_for_function("() => !location.hash.includes('from=')")
    page.get_by_text("Another time").wait_for()
    assert seen.complaints == []


def test_a_click_with_a_hand_that_trembles_leaves_the_time_as_it_is(
    demo: Installation, visit: Callable[..., Visit]
) -> None:
    seen = visit(demo)
    page = seen.open("history")
    page.wait_for_selector(".history .u-over")
    seen.settle()
    box = page.locator(".history .u-over").first.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 2, y + 1)
    page.mouse.up()
    seen.settle()
    assert "from=" not in page.url
    dragged(page)
    page.get_by_text("Shown: ").wait_for()
    assert seen.complaints == []


def test_the_hour_is_a_whole_hour_in_steps_of_a_minute(demo: Installation, visit: Callable[..., Visit]) -> None:
    page = visit(demo).page
    with page.expect_response(lambda response: "/api/history?" in response.url) as told:
        page.goto(f"{demo.url}/#/history?window=1h")
    shown = told.value.json()
    assert shown["step_s"] == 60
    assert shown["series"]
    minutes = (datetime.fromisoformat(shown["to"]) - datetime.fromisoformat(shown["from"])) / timedelta(minutes=1)
    assert minutes in {61, 62}  # the running minute is the last step


@pytest.mark.parametrize(("first", "shown"), [(-10, 11), (-2, 5)])  # steps from the end: at least five are shown
def test_time_begins_with_the_first_attempts_until_a_window_is_chosen(
    demo: Installation, visit: Callable[..., Visit], first: int, shown: int
) -> None:
    def begin(route: "Route") -> None:
        response = route.fetch()
        told: dict[str, Any] = response.json()
        for each in told["series"]:
            each["n"] = [0] * len(each["t"])
            each["n"][first] = 3
        route.fulfill(response=response, json=told)

    seen = visit(demo)
    seen.page.route("**/api/history*", begin)
    page = seen.open("history")
    plot = page.locator("section[aria-labelledby=plot-ttft]")
    plot.locator("summary").click()
    plot.locator("tbody tr").first.wait_for()
    assert plot.locator("tbody tr").count() in {shown, shown + 1}  # the running minute may be the next
    page.get_by_text("from the first attempts on").wait_for()
    page.get_by_role("button", name="Hour").click()
    page.get_by_text("from the first attempts on").wait_for(state="hidden")
    plot.locator("tbody tr").nth(60).wait_for()
    with page.expect_response(lambda response: "/api/history?" in response.url and "from=" in response.url):
        dragged(page)
    page.get_by_text("Shown: ").wait_for()
    seen.page.unroute_all(behavior="wait")  # the answer to the drag is read before the window closes
    assert seen.complaints == []


@pytest.mark.parametrize("width", [1920, 1280, 1024, 768, 390])
def test_the_plots_of_the_last_row_fill_it(demo: Installation, visit: Callable[..., Visit], width: int) -> None:
    seen = visit(demo, width=width)
    page = seen.open("history")
    page.wait_for_selector("main canvas")
    seen.settle()
    whole, *boxes = [each.bounding_box() for each in page.locator(".history > .columns, .history > .columns > *").all()]
    assert whole is not None
    rows: dict[float, float] = {}
    for box in boxes:
        assert box is not None
        rows[box["y"]] = max(rows.get(box["y"], 0), box["x"] + box["width"])
    assert all(abs(right - whole["x"] - whole["width"]) <= 1 for right in rows.values())


def test_a_range_of_time_is_kept_for_the_way_back_and_goes_to_no_other_view(
    demo: Installation, visit: Callable[..., Visit]
) -> None:
    seen = visit(demo)
    page = seen.open("history")
    page.get_by_text("Another time").click()
    page.get_by_label("From").fill("2026-01-22T14:00")
    page.get_by_label("To", exact=True).fill("2026-01-22T15:00")
    page.get_by_role("button", name="Show", exact=True).click()
    page.get_by_text("No attempts").wait_for()
    page.locator("#navigation").get_by_text("Leaderboard").click()
    page.wait_for_selector("main[data-view=leaderboard]")
    assert "from=" not in page.url
    page.locator("#navigation").get_by_text("Calls").click()
    page.wait_for_selector("main[data-view=calls]")
    page.locator("#navigation").get_by_text("History").click()
    page.get_by_text("Shown: ").wait_for()
    page.locator("#navigation").get_by_text("What racing saved").click()
    page.wait_for_selector("main[data-view=worth]")
    page.get_by_role("button", name="Week").click()
    page.locator("#navigation").get_by_text("History").click()
    page.wait_for_selector("main[data-view=history]")
    page.get_by_text("Another time").wait_for()
    page.go_back()
    page.go_back()
    page.go_back()
    page.get_by_text("Shown: ").wait_for()
    page.get_by_role("button", name="Hour").click()
    page.wait_for_function("() => !location.hash.includes('from=')")
    assert seen.complaints == []


def test_the_keyboard_stays_where_a_time_was_chosen(demo: Installation, visit: Callable[..., Visit]) -> None:
    page = visit(demo).open("history")

    def pressed() -> str:
        page.keyboard.press("Enter")
        return str(page.evaluate("() => document.activeElement.innerText"))

    windows = page.get_by_role("group", name="Time", exact=True).first
    windows.get_by_role("button", name="Week").focus()
    assert pressed() == "Week"
    page.get_by_text("Another time").click()
    page.get_by_role("button", name="Show", exact=True).focus()
    assert pressed() == "Show"
    page.get_by_text("Shown: ").wait_for()
    page.get_by_role("button", name="Leave this range").focus()
    assert pressed() == "Week"
    page.get_by_text("Another time").click()
    page.get_by_role("button", name="Show", exact=True).click()
    windows.get_by_role("button", name="Day").focus()
    assert pressed() == "Day"
    page.get_by_text("Another time").wait_for()


def test_the_keyboard_stays_where_it_was_when_the_page_chooses_the_hour(
    demo: Installation, visit: Callable[..., Visit]
) -> None:
    page = visit(demo).page
    held: list[Route] = []
    page.route("**/api/history*", lambda route: held.append(route))  # noqa: PLW0108 - Playwright marks what it calls
    with page.expect_request("**/api/history*"):
        page.goto(f"{demo.url}/#/history")
    week = page.get_by_role("group", name="Time", exact=True).first.get_by_role("button", name="Week")
    week.focus()
    held[0].continue_()
    page.locator("[aria-pressed=true]").get_by_text("Hour", exact=True).first.wait_for()
    assert page.evaluate("() => document.activeElement.innerText") == "Week"


def test_an_outage_of_four_minutes_is_told_as_four(demo: Installation, visit: Callable[..., Visit]) -> None:
    began = datetime.now(UTC) - timedelta(minutes=20)

    def see(route: "Route") -> None:
        response = route.fetch()
        told = response.json()
        told["outages"] = [{
            "deployment": told["series"][0]["deployment"], "reason": "connect_error", "replica": "here",
            "from": began.isoformat(), "to": (began + timedelta(minutes=4)).isoformat(), "may_last": False,
        }]  # fmt: skip
        route.fulfill(response=response, json=told)

    seen = visit(demo)
    seen.page.route("**/api/history*", see)
    seen.page.goto(f"{demo.url}/#/history?window=1h")
    seen.page.locator("section[aria-labelledby=outages]").get_by_text("4 min").wait_for()
    first = seen.page.locator("section[aria-labelledby=plot-ttft]")
    first.locator("summary").click()
    marked = [each for each in first.locator("tbody tr").all_inner_texts() if " out" in each]
    assert 4 <= len(marked) <= 5


def test_history_does_not_scroll_sideways_on_a_phone(demo: Installation, visit: Callable[..., Visit]) -> None:
    def lengthen(route: "Route") -> None:
        response = route.fetch()
        told: dict[str, Any] = response.json()
        for name in ("series", "rows"):
            for number, row in enumerate(told.get(name, [])):
                row["deployment"] = f"{LONG}-{number}"
        route.fulfill(response=response, json=told)

    seen = visit(demo, width=390)
    seen.page.route("**/api/history*", lengthen)
    seen.page.route("**/api/heat*", lengthen)
    page = seen.open("history")
    page.get_by_text(f"{LONG}-0").first.wait_for()
    seen.settle()
    assert seen.overflow_px() <= 0
    assert seen.scrolling() == []
    assert seen.complaints == []
