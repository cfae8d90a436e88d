"""One picture of an attempt in Live and on a call's page, one legend, and what a phone shows of them."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.test_figures import race
from tests.browser.visit import Visit
from tests.support.browser.installation import Installation

if TYPE_CHECKING:
    from playwright.sync_api import Route

SIGNS = "main .signs .entry"
# Kinds of parts by an attempt's state: `[state, first, end, isOver, won]`.
PARTS = """async (all) => {
  const { partsOf } = await import("./page/lib/picture.js");
  return all.map(([state, first, end, isOver, won]) =>
    partsOf({ begin: 0, first, end, state, isOver, won, stub: 20 }).map(each => each.kind));
}"""
BROKEN = {
    "status_code": 200, "error_kind": "disconnected", "completion_tokens": 5, "ttft_ms": 200.0, "total_ms": 900.0,
    "winner_attempt_id": None, "tokens_source": "estimated",
}  # fmt: skip
WRITTEN = """window.written = [];
const write = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  if (this.textAlign === "right") written.push([text, x - this.measureText(text).width]);
  return write.call(this, text, x, y);
};"""


def test_hatched_is_what_was_cut_and_nothing_else(demo: Installation, visit: Callable[..., Visit]) -> None:
    page = visit(demo).open("live")
    states = {
        "waits": ("waiting", None, 100, False, None),
        "answers": ("answering", 50, 100, False, None),
        "answered": ("won", 50, 100, True, None),
        "fails": ("failed", None, 100, True, None),
        "breaks off": ("failed", 50, 100, True, None),
        "cut": ("cut", None, 100, True, 100),
        "cut late": ("cut", 50, 100, True, 45),
        "watched on": ("cut", 300, 300, True, 100),
    }
    kinds = dict(zip(states, page.evaluate(PARTS, list(states.values())), strict=True))
    assert {name for name, parts in kinds.items() if "cut" in parts} == {"cut", "cut late", "watched on"}
    assert {name for name, parts in kinds.items() if "fails" in parts} == {"fails", "breaks off"}
    assert {name for name, parts in kinds.items() if "watched" in parts} == {"watched on"}


def test_live_and_a_call_have_one_legend(demo: Installation, visit: Callable[..., Visit]) -> None:
    [(call_id,)] = demo.rows("select id from calls where launched > 1 and ttft_ms is not null limit 1")
    seen = visit(demo)
    page = seen.open(f"calls/{call_id}")
    page.wait_for_selector(".timeline .sign.won")
    of_call = page.locator(SIGNS).all_inner_texts()
    demo.calls(2)
    page = seen.open("live")
    page.locator(SIGNS).first.wait_for(state="attached")
    of_live = page.locator("main .foot .signs .entry").all_text_contents()
    assert of_live == [each for each in of_call if each != "the client's first token"]
    assert len(of_live) == 6


def test_a_call_that_broke_off_says_why_once_in_its_title(demo: Installation, visit: Callable[..., Visit]) -> None:
    [(call_id,)] = demo.rows("select id from calls limit 1")

    def break_off(route: "Route") -> None:
        response = route.fetch()
        told = response.json()
        told["call"] |= BROKEN
        for each in told["attempts"]:
            each |= {"deployment": "alpha/fast", "outcome": "failed", "error_kind": "disconnected", "ttft_ms": 200.0}
        route.fulfill(response=response, json=told)

    page = visit(demo).page
    page.route("**/api/calls/*", break_off)
    page.goto(f"{demo.url}/#/calls/{call_id}")
    page.wait_for_selector("main h2:text-is('The race')")
    title = page.locator("main .lead").inner_text()
    assert title == "✕ Broke off after ~5 tokens: alpha/fast closed the connection."
    answer = page.locator("main dt:text-is('Answer')").locator("xpath=following-sibling::dd[1]")
    assert answer.inner_text() == "~5"


def test_lanes_have_their_names_on_a_phone(demo: Installation, visit: Callable[..., Visit]) -> None:
    def tell(route: "Route") -> None:
        began = datetime.now(UTC) - timedelta(seconds=9)
        calls = [race(number, began) for number in range(3)]
        for each in calls:
            each["attempts"][0]["deployment"] = "a-provider-of-a-long-name/a-model"
        route.fulfill(json={"data": calls, "next": None, "sql": ""})

    seen = visit(demo, width=390)
    seen.page.add_init_script(WRITTEN)
    seen.page.clock.set_fixed_time(datetime.now(UTC))
    seen.page.route("**/api/calls?*", tell)
    page = seen.open("live")
    page.wait_for_function("() => written.some(([text]) => text === 'p1')")
    names = dict(page.evaluate("() => written"))
    assert min(names.values()) >= 0
    assert any(text.startswith("a-pro") and text.endswith("…") for text in names)


def test_what_stands_in_place_of_the_lanes_fills_its_card_and_moves_nothing_that_is_pointed_at(
    demo: Installation, visit: Callable[..., Visit]
) -> None:
    calls: list[dict[str, Any]] = [race(1, datetime.now(UTC) - timedelta(minutes=5))]
    seen = visit(demo)
    seen.page.route("**/api/calls?*", lambda route: route.fulfill(json={"data": calls, "next": None, "sql": ""}))
    page = seen.open("live")
    page.get_by_role("heading", name="The last race").wait_for()
    page.locator("section.last tbody tr").first.wait_for()
    [stage, inside] = [page.locator(each).bounding_box() for each in ("main .stage", "main .stage .inside")]
    assert stage is not None
    assert inside is not None
    assert abs(stage["height"] - inside["height"]) <= 2
    page.locator("section.last h2").hover()
    demo.calls(3)
    page.wait_for_function("() => Number(document.querySelector('main .stat:first-child dd').innerText) > 0")
    held = page.locator("main .stage").bounding_box()
    assert held is not None
    assert held["height"] == stage["height"]
    page.mouse.move(5, 5)
    page.wait_for_function("() => document.querySelector('main .lanes').clientHeight > 200")
    assert seen.complaints == []


@pytest.mark.parametrize("width", [1280, 390])
def test_dollars_are_on_the_first_screen(demo: Installation, visit: Callable[..., Visit], width: int) -> None:
    def see(route: "Route") -> None:
        response = route.fetch()
        told = response.json()
        row = told["data"][0] | {"cost_usd": 1.5, "duplicate_cost_usd": 0.25}
        told["data"] = [row, row | {"model": "another", "cost_usd": None, "duplicate_cost_usd": None}]
        route.fulfill(response=response, json=told)

    seen = visit(demo, width=width)
    seen.page.route("**/api/race-value*", see)
    page = seen.open("live")
    tile = page.locator(".stat", has_text="Cost")
    tile.get_by_text("$0.25 of it by racing, in the last 24 hours").wait_for()
    assert tile.locator("dd").first.inner_text() == "$1.50"
    box = tile.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] <= 900


def test_a_phone_has_cards_of_the_deployments_with_calls(demo: Installation, visit: Callable[..., Visit]) -> None:
    def tell(route: "Route") -> None:
        response = route.fetch()
        told: dict[str, Any] = response.json()
        first, *others = told["models"][0]["deployments"]
        first |= {"n": 5, "state": "ok"}
        for each in others:
            each |= {"n": 0, "n_censored": 0, "n_rate_limited": 0, "state": "ok"}
        others[-1] |= {"state": "open", "reason": "no connection"}
        told["models"] = told["models"][:1]
        route.fulfill(response=response, json=told)

    shown = {}
    for width in (390, 1280):
        seen = visit(demo, width=width)
        seen.page.route("**/api/leaderboard*", tell)
        page = seen.open("leaderboard")
        page.locator(".board tbody tr").first.wait_for()
        shown[width] = page.locator(".board tbody tr").count()
        assert (page.get_by_text("Without calls lately").count() == 1) == (width == 390)
        assert seen.overflow_px() <= 0
    assert shown[390] == 2
    assert shown[1280] > 2


def test_estimated_tokens_of_the_list_are_marked(demo: Installation, visit: Callable[..., Visit]) -> None:
    def estimate(route: "Route") -> None:
        response = route.fetch()
        told = response.json()
        for number, row in enumerate(told["data"]):
            row |= {
                "tokens_source": "estimated" if number else "reported",
                "prompt_tokens": 12,
                "completion_tokens": 34,
            }
        route.fulfill(response=response, json=told)

    seen = visit(demo)
    seen.page.route("**/api/calls?*", estimate)
    page = seen.open("calls")
    seen.settle()
    cells = page.locator("main td[data-label=Tokens]").all_inner_texts()
    assert [each.replace("\u00a0", " ") for each in cells[:2]] == ["12 → 34", "~12 → ~34"]
