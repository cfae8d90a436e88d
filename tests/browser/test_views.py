"""Every view, in four widths and both themes: a silent console, no request elsewhere, no objection of axe-core."""

import json
import re
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from gateway.core.ids import new_id
from tests.browser.visit import Visit
from tests.support.browser.installation import MODEL, Installation

if TYPE_CHECKING:
    from playwright.sync_api import Route

VIEWS = (
    "live", "leaderboard", "alerts", "calls", "history", "worth", "replay", "targets", "refusals", "keys", "playground",
    "configuration",
)  # fmt: skip
UNDER = {"targets": "alerts", "refusals": "calls", "replay": "worth"}  # the entry of the menu that they belong to
LOOKS = ((1400, False, True), (1280, True, False), (900, False, False), (390, True, True))  # width, dark, with axe-core
SCROLLS = 900  # wide tables do, in their own place: there is no room for all figures, and too much for a list
LONG_NAME = "openrouter/meta-llama/llama-3.3-70b-instruct"
LONG_WORD = "m" * 100
PHONE = 640
CALM = (1280, 900)  # widths for who asked for little motion: what moves is painted sixty times a second
# The lines of an element's text, as they are painted.
LINES = """all => all.map(each => {
  const lines = [];
  const walk = document.createTreeWalker(each, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  let top = null;
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    for (let at = 0; at < node.length; at += 1) {
      range.setStart(node, at);
      range.setEnd(node, at + 1);
      const box = range.getBoundingClientRect();
      if (top === null || box.top > top + 4) lines.push("");
      top = box.top;
      lines[lines.length - 1] += node.data[at];
    }
  }
  return lines;
})"""
AGAIN = "00:06"  # of the page's clock: then what failed has been tried again


@pytest.mark.parametrize(("width", "dark", "asks"), LOOKS)
def test_every_view_is_clean(
    demo: Installation, visit: Callable[..., Visit], width: int, dark: bool, asks: bool
) -> None:
    seen = visit(demo, width=width, dark=dark, calm=width in CALM)
    for view in VIEWS:
        page = seen.open(view)
        seen.settle()
        assert page.locator("#navigation a[aria-current=page]").get_attribute("href") == f"#/{UNDER.get(view, view)}", (
            view
        )
        assert not asks or seen.axe() == [], view
        assert seen.overflow_px() <= 0, view
        assert width == SCROLLS or seen.scrolling() == [], view
        assert seen.complaints == [], view


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1024, True), (768, False), (390, True)])
def test_long_names_and_large_figures_fit(
    demo: Installation, visit: Callable[..., Visit], width: int, dark: bool
) -> None:
    seen = visit(demo, calm=True, width=width, dark=dark)

    def grow(route: "Route") -> None:
        response = route.fetch()
        told = response.json()
        for model in told["models"]:
            for number, row in enumerate(model["deployments"]):
                row |= {"deployment": f"{LONG_NAME}-{number}", "state": "half-open", "n_rate_limited": 1234}
                row |= {
                    "reason": "rate-limited by the provider until 12:04:05",
                    "itl_p50_ms": 1234,
                    "itl_p95_ms": 12345,
                }
                row |= {
                    "ttft_p50_ms": 12345,
                    "ttft_p95_ms": 123456,
                    "is_biased": True,
                    "is_buffered": True,
                    "e2e_mean_tps": 1234,
                }
                row |= {"sentence_p50_ms": 12345, "sentence_p95_ms": 123456, "is_sentence_biased": True}
                row |= {"silence_p95_ms": 123456}
                row |= {
                    "win_share": 1,
                    "error_rate": 1,
                    "headroom": 1,
                    "price": {"prompt": 0.000012, "completion": 150},
                }
        route.fulfill(response=response, json=told)

    def lengthen(route: "Route") -> None:
        response = route.fetch()
        told = response.json()
        for row in told["data"]:
            row |= {"deployment": LONG_NAME, "model": "llama-3.3-70b:quick", "client": "mobile-application"}
            row |= {"started_at": "2026-01-22T03:01:02Z", "prompt_tokens": 123456, "completion_tokens": 12345}
            row |= {"ttft_ms": 12345, "total_ms": 123456}
        route.fulfill(response=response, json=told)

    seen.page.route("**/api/leaderboard*", grow)
    seen.page.route("**/api/calls?*", lengthen)
    for view in ("leaderboard", "calls") if width in {1280, 390} else ("leaderboard",):
        page = seen.open(view)
        seen.settle()
        assert LONG_NAME in page.locator("main tbody tr").first.inner_text()
        assert seen.overflow_px() <= 0, view
        assert seen.scrolling() == [], view
    assert seen.complaints == []


@pytest.mark.parametrize("width", [650, 768, 840, 1024, 1200])
def test_the_leaderboard_is_seen_whole_in_every_window(
    demo: Installation, visit: Callable[..., Visit], width: int
) -> None:
    seen = visit(demo, calm=True, width=width)
    page = seen.open("leaderboard")
    page.locator(".board tbody tr").first.wait_for()
    assert seen.scrolling() == []
    board = page.locator("section.board").first
    # Seen at one moment: the page draws its rows again and again.
    beyond_px = board.evaluate(
        """board => [...board.querySelectorAll("th .sort, td .figure")].map(
            figure => figure.getBoundingClientRect().right - board.getBoundingClientRect().right
        )"""
    )
    assert max(beyond_px) <= 0
    heads = board.get_by_role("button", name="p95")
    figures = board.locator("td[data-label=p95] > span")
    rights = [(box["x"] + box["width"]) for box in (heads.bounding_box(), figures.first.bounding_box()) if box]
    assert abs(rights[0] - rights[1]) <= 1  # a figure is below its column's name


@pytest.mark.parametrize("dark", [False, True])
def test_a_table_that_goes_on_beyond_its_edge_is_shaded_there(
    demo: Installation, visit: Callable[..., Visit], dark: bool
) -> None:
    seen = visit(demo, calm=True, width=768, dark=dark)
    page = seen.open("calls")
    seen.settle()
    scroll = page.locator("main .scroll").first
    box = scroll.bounding_box()
    assert box is not None
    [left, right] = [box["x"] + 2, box["x"] + box["width"] - 3]
    y = box["y"] + 3  # above the words of the head
    plain = seen.colour(left + 100, y)
    assert seen.colour(left, y) == plain
    assert seen.colour(right, y) != plain
    scroll.evaluate("each => { each.scrollLeft = each.scrollWidth; }")
    assert seen.colour(left, y) != plain
    assert seen.colour(right, y) == plain


def test_figures_of_live_are_seen_beside_a_long_list_of_deployments(
    demo: Installation, visit: Callable[..., Visit]
) -> None:
    asked = ",".join(f"{provider}/meta-llama/llama-3.3-70b-instruct" for provider in ("groq", "together", "deepinfra"))

    def lengthen(route: "Route") -> None:
        response = route.fetch()
        told = response.json()
        for row in told["data"]:
            row |= {"model": asked, "client": "mobile-application"}
        route.fulfill(response=response, json=told)

    seen = visit(demo, calm=True, width=1280)
    seen.page.route("**/api/calls?*", lengthen)
    page = seen.open("live")
    page.get_by_role("cell", name=asked).first.wait_for()
    assert seen.scrolling() == []


@pytest.mark.parametrize("view", ["live", "leaderboard", "calls", "history", "worth", "playground", "keys"])
def test_names_of_one_long_word_fit_a_phone(demo: Installation, visit: Callable[..., Visit], view: str) -> None:
    seen = visit(demo, calm=True, width=390)

    def lengthen(route: "Route") -> None:
        response = route.fetch()
        said = response.text().replace(f'"{MODEL}"', f'"{LONG_WORD}"')
        told = json.loads(said)
        if route.request.url.endswith("session"):
            told["clients"] = [LONG_WORD]
        if route.request.url.endswith("keys"):
            told["data"] = [{"name": LONG_WORD, "role": "client", "source": "file", "keys": [], "models": None}]
        route.fulfill(response=response, json=told)

    seen.page.route("**/api/*", lambda route: route.continue_() if "live" in route.request.url else lengthen(route))
    page = seen.open(view)
    seen.settle()
    assert LONG_WORD in page.locator("main").inner_text()
    assert seen.overflow_px() <= 0


@pytest.mark.parametrize(
    ("told_when_away", "words"),
    [
        ({"database_ok": False}, "database away"),
        ({"clock_off_s": 30.4}, "clock 30 s off"),
        ({"replica": {"connected": False, "lag_s": None}}, "replica away"),
        ({"replica": {"connected": True, "lag_s": 12.3}}, "12 s behind"),
    ],
)
def test_a_database_that_goes_and_returns_is_told_without_a_reload(
    demo: Installation, visit: Callable[..., Visit], told_when_away: dict[str, Any], words: str
) -> None:
    page = visit(demo, calm=True).page
    is_away = False

    def tell(route: "Route") -> None:
        response = route.fetch()
        told = response.json()
        told["stores"] |= {"database_ok": True} | (told_when_away if is_away else {})
        route.fulfill(response=response, json=told)

    page.route("**/api/session", tell)
    page.clock.install()
    page.goto(f"{demo.url}/#/configuration")
    page.wait_for_selector("#tools button, #tools select")
    chip = page.locator("#tools").get_by_text(words)
    assert chip.count() == 0
    is_away = True
    page.clock.fast_forward("01:01")
    chip.wait_for()
    is_away = False
    page.clock.fast_forward("01:01")
    chip.wait_for(state="detached")


@pytest.mark.parametrize("view", ["live", "calls", "history", "worth", "refusals"])
def test_a_view_says_once_that_the_database_is_away_and_recovers_by_itself(
    demo: Installation, visit: Callable[..., Visit], view: str
) -> None:
    page = visit(demo, calm=True).page
    of_database = re.compile(r"/api/(calls|history|heat|slowdowns|race-value|refusals|usage)\b")
    error = {"error": {"message": "the database does not answer", "type": "service_unavailable"}}
    page.route(of_database, lambda route: route.fulfill(status=503, json=error))
    page.clock.install()
    page.goto(f"{demo.url}/#/{view}")
    page.get_by_role("alert").first.wait_for()
    page.wait_for_selector("main [aria-busy=true]", state="detached")
    assert page.get_by_role("alert").all_inner_texts() == ["the database does not answer\n\nTry again"]
    page.unroute(of_database)
    page.clock.fast_forward(AGAIN)
    page.get_by_role("alert").first.wait_for(state="detached")


@pytest.mark.parametrize("view", ["live", "history"])
def test_every_canvas_has_a_name(demo: Installation, visit: Callable[..., Visit], view: str) -> None:
    page = visit(demo, calm=True).open(view)
    page.locator("main canvas").first.wait_for(state="attached")  # the lanes are hidden below a single race
    names = page.locator("main canvas").evaluate_all("all => all.map(each => each.getAttribute('aria-label'))")
    assert all(names)


def test_history_opens_on_the_hour_when_there_is_no_more_than_that(
    demo: Installation, visit: Callable[..., Visit]
) -> None:
    seen = visit(demo, calm=True)
    page = seen.open("history")
    page.wait_for_selector("main canvas")
    pressed = page.get_by_role("group", name="Time", exact=True).first.locator("[aria-pressed=true]")
    assert pressed.inner_text() == "Hour"
    with page.expect_response(lambda response: "/api/history" in response.url and "24h" in response.url):
        page.get_by_role("button", name="Day").click()
    seen.settle()
    assert pressed.inner_text() == "Day"


def test_a_call_that_cannot_be_read_does_not_load_for_ever(demo: Installation, visit: Callable[..., Visit]) -> None:
    page = visit(demo, calm=True).page
    page.route("**/api/calls/*", lambda route: route.fulfill(status=503, body='{"error": {"message": "away"}}'))
    page.clock.install()
    page.goto(f"{demo.url}/#/calls/01a202e0-8b7f-7369-a14f-3f80f53e898c")
    page.get_by_role("alert").wait_for()
    assert page.locator("main [aria-busy=true]").count() == 0
    page.unroute("**/api/calls/*")
    page.clock.fast_forward(AGAIN)
    page.wait_for_selector("main h2:text-is('No such call')")  # it tries again by itself


def test_a_call_that_another_worker_has_is_shown_once_its_row_is_stored(
    demo: Installation, visit: Callable[..., Visit]
) -> None:
    [(stored, *_)] = demo.rows("select id from calls limit 1")
    told = demo.ask(f"/api/calls/{stored}")[1]
    missing = {"error": {"message": "no call has this id"}}
    page = visit(demo, calm=True).page
    page.route("**/api/calls/*", lambda route: route.fulfill(status=404, json=missing))
    page.clock.install()
    page.goto(f"{demo.url}/#/calls/{new_id()}")
    page.wait_for_selector("main h2:text-is('Not here yet')")
    page.unroute("**/api/calls/*")
    page.route("**/api/calls/*", lambda route: route.fulfill(json=told))
    page.clock.fast_forward(AGAIN)
    page.wait_for_selector("main h2:text-is('The race')")


def test_a_mistyped_id_is_told_so_and_with_the_call_that_it_almost_is(
    demo: Installation, visit: Callable[..., Visit]
) -> None:
    [(stored,)] = demo.rows("select id from calls order by started_at desc limit 1")
    known = str(UUID(stored))
    page = visit(demo, calm=True).page
    for mistyped, title in (
        (known[:-1], "No such call"),  # not whole: no other worker can have it
        (known[:-1] + ("0" if known[-1] != "0" else "1"), "Not here yet"),
        ("nonsense", "No such call"),
    ):
        page.goto(f"{demo.url}/#/calls/{mistyped}")
        page.locator("main h2").get_by_text(title, exact=True).wait_for()
        page.get_by_text("mistyped").wait_for()
        assert page.get_by_role("link", name="All calls").count() == 1
        if mistyped != "nonsense":
            page.get_by_role("link", name="almost this id").click()
            page.wait_for_selector("main h2:text-is('The race')")
            assert known in page.url


def test_a_call_that_nobody_has_is_given_up_at_the_time_that_was_told(
    demo: Installation, visit: Callable[..., Visit]
) -> None:
    page = visit(demo, calm=True).page
    page.clock.install()
    page.goto(f"{demo.url}/#/calls/{new_id()}")
    page.wait_for_selector("main h2:text-is('Not here yet')")
    page.get_by_text("looks for it until").wait_for()
    page.clock.fast_forward("11:00")
    page.wait_for_selector("main h2:text-is('No such call')")


def test_a_provider_left_out_can_be_taken_back_where_nothing_was_replayed(
    demo: Installation, visit: Callable[..., Visit]
) -> None:
    page = visit(demo, calm=True).page
    page.goto(f"{demo.url}/#/replay?without=nobody-has-this")
    page.wait_for_selector("main h2:text-is('Nothing to replay')")
    page.get_by_label("Without").select_option("")
    page.wait_for_selector("main h2:text-is('What this assumes')")


def test_a_filter_of_live_that_a_link_names_can_be_taken_back(demo: Installation, visit: Callable[..., Visit]) -> None:
    page = visit(demo, calm=True).page
    page.goto(f"{demo.url}/#/live?model=nothing&client=nobody&deployment=no/where")
    for label, name in (("Model", "nothing"), ("Client", "nobody"), ("Deployment", "no/where")):
        field = page.locator("main label", has_text=label).locator("select")
        assert field.input_value() == name
        field.select_option("")
    page.wait_for_function("() => location.hash === '#/live'")


def test_an_interval_without_a_width_is_not_told(demo: Installation, visit: Callable[..., Visit]) -> None:
    def see(route: "Route") -> None:
        response = route.fetch()
        told = response.json()
        for row in told["data"]:
            row |= {"n": 40, "n_compared": 40, "n_raced": 20, "basis": "seen"}
            row |= {"saved_ms": 1600, "saved_low_ms": 1600, "saved_high_ms": 1600, "saved_per_call_ms": 40}
        route.fulfill(response=response, json=told)

    page = visit(demo, calm=True).page
    page.route("**/api/race-value*", see)
    page.goto(f"{demo.url}/#/worth")
    lead = page.locator("main p.lead").first.inner_text()
    assert lead.startswith("Racing saved 40 ms per call")
    assert "40 ms to 40 ms" not in lead


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("size", [0.4, 2.4, 390.0, 1900.0])
def test_labels_of_an_axis_do_not_touch(
    demo: Installation, visit: Callable[..., Visit], width: int, size: float
) -> None:
    def see(route: "Route") -> None:
        response = route.fetch()
        told = response.json()
        for row in told["data"]:
            row |= {"n": 40, "n_compared": 40, "n_raced": 20, "basis": "seen"}
            row |= {f"saved{end}_ms": 40 * size for end in ("", "_low", "_high")}
            row |= {f"saved_per_call{end}_ms": size for end in ("", "_low", "_high")}
            row |= {f"{name}_{q}_ms": size for name in ("ttft", "alone") for q in ("p50", "p95", "p99")}
            row |= {"duplicate_cost_low_usd": size * 1e-7, "duplicate_cost_high_usd": size * 1e-6}
        route.fulfill(response=response, json=told)

    seen = visit(demo, calm=True, width=width)
    seen.page.route("**/api/race-value*", see)
    page = seen.open("worth")
    seen.settle()
    axes = page.locator("main .axis").evaluate_all("""all => all.map(each => [...each.children].map(label => {
        const { left, right } = label.getBoundingClientRect();
        return [left, right];
    }))""")
    assert len(axes) == 3
    for labels in axes:
        assert len(labels) >= 2
        assert all(one[1] < other[0] for one, other in pairwise(labels))


def test_each_of_two_figures_in_a_cell_sorts(demo: Installation, visit: Callable[..., Visit]) -> None:
    seen = visit(demo, calm=True)
    page = seen.open("leaderboard")
    seen.settle()
    board = page.locator("section.board").first

    def prices() -> list[list[float]]:
        cells = board.locator("td[data-label='$/M prompt']").all_inner_texts()
        return [[float(each.strip("$")) for each in cell.split("\n")] for cell in cells]

    unsorted = prices()
    assert len(unsorted) > 1
    for place, title in enumerate(("$/M prompt", "$/M answer")):
        board.get_by_role("button", name=title).click()
        assert [each[place] for each in prices()] == sorted((each[place] for each in unsorted), reverse=True)
        head = board.locator("th[aria-sort=descending]")
        assert head.locator("[data-turn]").all_inner_texts() == [title]


def test_the_description_of_the_api_is_clean(demo: Installation, visit: Callable[..., Visit]) -> None:
    seen = visit(demo, calm=True)
    seen.page.goto(f"{demo.url}/docs")
    seen.page.wait_for_selector("#listCalls")
    assert seen.axe("header", "nav", "#createChatCompletion", "#listCalls") == []  # a second each: some of the page
    assert seen.complaints == []


def test_operations_of_the_api_are_found_by_words(demo: Installation, visit: Callable[..., Visit]) -> None:
    page = visit(demo, calm=True).page
    page.goto(f"{demo.url}/docs")
    page.wait_for_selector("#listCalls")
    page.get_by_label("Find").fill("transcriptions")
    page.wait_for_selector("#listCalls", state="hidden")
    assert page.locator("section.card:visible code").get_by_text("/v1/audio/transcriptions").count() >= 1


@pytest.mark.parametrize("width", [1280, 360])
def test_paths_of_the_api_break_between_words(demo: Installation, visit: Callable[..., Visit], width: int) -> None:
    page = visit(demo, calm=True, width=width).page
    page.goto(f"{demo.url}/docs")
    page.wait_for_selector("#listCalls", state="attached")
    if width < PHONE:
        page.get_by_role("button", name="Menu").click()
    lines = page.locator("#navigation a .path").evaluate_all(LINES)
    assert any(len(each) > 1 for each in lines)
    # A word ends with a hyphen, too: /model/{model}/invoke-with-response-stream.
    begins = {line[0] for each in lines for before, line in pairwise(each) if not before.endswith("-")}
    assert begins <= set("/:{_")


def test_settings_within_settings_fit_their_card(demo: Installation, visit: Callable[..., Visit]) -> None:
    def deepen(route: "Route") -> None:
        response = route.fetch()
        told = response.json()
        told["settings"]["teams"] = {"research": {"end_users": {"named": {"ann@example.com": {"rpm": 123456789}}}}}
        route.fulfill(response=response, json=told)

    for width in (1280, 768, 360):
        seen = visit(demo, calm=True, width=width)
        seen.page.route("**/api/configuration", deepen)
        page = seen.open("configuration")
        page.get_by_text("ann@example.com").wait_for()
        assert seen.overflow_px() <= 0
        deepest = page.locator("dd", has_text="123456789").last
        card = page.locator("section[aria-labelledby=settings]")
        [inner, outer] = [each.bounding_box() for each in (deepest, card)]
        assert inner is not None
        assert outer is not None
        assert inner["x"] + inner["width"] <= outer["x"] + outer["width"]


def test_no_figure_of_live_leaves_half_a_row_empty_on_a_phone(demo: Installation, visit: Callable[..., Visit]) -> None:
    page = visit(demo, calm=True, width=390).open("live")
    measured = """() => {
      const last = [...document.querySelectorAll("main .stat")].filter((each) => each.offsetParent).at(-1);
      return last && [last, last.closest(".stats")].map((each) => each.getBoundingClientRect().right);
    }"""
    last, whole = page.wait_for_function(measured).json_value()  # at once, as figures are drawn again
    assert last >= whole - 3  # its borders


def test_the_hour_after_midnight_is_the_first(demo: Installation, visit: Callable[..., Visit]) -> None:
    seen = visit(demo, calm=True)
    page = seen.page
    page.clock.install(time="2026-01-22T12:00:00")
    seen.open("configuration")
    night = page.evaluate("() => new Date(2026, 0, 22, 0, 5, 6).toISOString()")

    def begin_at_night(route: "Route") -> None:
        response = route.fetch()
        told = response.json()
        for row in told["data"]:
            row["started_at"] = night
        route.fulfill(response=response, json=told)

    page.route("**/api/calls?*", begin_at_night)
    seen.open("calls")
    seen.settle()
    assert page.locator("main tbody th").first.inner_text() == "00:05:06"


def test_paper_is_white_also_where_the_dark_theme_was_chosen(demo: Installation, visit: Callable[..., Visit]) -> None:
    page = visit(demo, calm=True).open("calls")
    page.get_by_label("Theme").select_option("dark")
    page.emulate_media(media="print")
    ink = page.evaluate("() => getComputedStyle(document.body).color")
    assert max(map(int, re.findall(r"\d+", ink))) < 64
    assert not page.locator("#navigation").is_visible()


def test_a_model_with_a_space_in_its_name_names_its_part_of_the_configuration(
    demo: Installation, visit: Callable[..., Visit]
) -> None:
    def rename(route: "Route") -> None:
        response = route.fetch()
        told = response.json()
        told["models"][0]["name"] = "my own model"
        route.fulfill(response=response, json=told)

    seen = visit(demo, calm=True)
    seen.page.route("**/api/configuration", rename)
    page = seen.open("configuration")
    page.get_by_role("region", name="my own model", exact=True).wait_for()


def test_every_view_is_reached_by_keyboard(demo: Installation, visit: Callable[..., Visit]) -> None:
    page = visit(demo, calm=True).open("leaderboard")
    # Not by their words: the number of alerts comes in when there are some, as on a busy machine.
    views = page.eval_on_selector_all("#navigation a", "links => links.map(each => each.getAttribute('href'))")
    reached = []
    for _ in range(len(views) + 6):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("() => document.activeElement.getAttribute('href')"))
    assert views
    assert set(views) <= set(reached)


def test_a_model_whose_racing_is_narrowed_says_since_when_and_why(
    demo: Installation, visit: Callable[..., Visit]
) -> None:
    def narrow(route: "Route") -> None:
        response = route.fetch()
        told = response.json()
        told["models"][0]["narrowed"] = {
            "reason": "rate_limits", "since": "2026-01-02T19:46:00Z", "why": "small/x is rate-limited",
        }  # fmt: skip
        route.fulfill(response=response, json=told)

    seen = visit(demo, calm=True)
    seen.page.route("**/api/leaderboard*", narrow)
    for view in ("live", "leaderboard"):
        page = seen.open(view)
        line = page.locator(".notes p", has_text="racing narrowed since")
        line.first.wait_for()
        assert line.all_inner_texts()[0].endswith(": small/x is rate-limited"), view
        assert seen.overflow_px() <= 0, view
    assert seen.complaints == []


def test_an_open_alert_is_a_count_in_the_menu_and_the_title_and_what_builds_up_is_shown(
    demo: Installation, visit: Callable[..., Visit]
) -> None:
    def tell(route: "Route") -> None:
        alert = {
            "id": "1", "key": "deployment_out:b/x", "kind": "deployment_out", "subject": "b/x", "severity": "ticket",
            "summary": "b/x is out since 19:40 UTC: no connection. One other answers.", "sql": "select 1",
            "opened_at": "2026-11-26T19:45:00Z", "resolved_at": None,
        }  # fmt: skip
        building = {
            "key": "deployment_out:a/x", "kind": "deployment_out", "subject": "a/x", "severity": "ticket",
            "summary": "a/x is out since 19:46 UTC: no connection. Two others answer.", "sql": "select 1",
            "since": "2026-11-26T19:46:00Z", "after_s": 300.0, "opens_in_s": 60.0,
        }  # fmt: skip
        outage = {
            "deployment": "c/x", "from": "2026-11-26T12:00:00Z", "to": "2026-11-26T12:02:00Z", "may_last": False,
            "reason": "connect_error", "replicas": ["here"],
        }  # fmt: skip
        told = {"enabled": True, "webhooks": [], "open": [alert], "building": [building], "data": [], "sql": "select 1"}
        route.fulfill(json={**told, "outages": [outage], "outages_sql": "select 1"})

    seen = visit(demo, calm=True)
    seen.page.route("**/api/alerts", tell)
    page = seen.open("alerts")
    seen.settle()
    shown = page.locator("main").inner_text()
    assert "a/x is out for" in shown
    assert "an alert opens after 5 min" in shown
    assert re.search(r"c/x\s+.*2 min\s+no connection", shown, re.DOTALL)
    assert page.locator("#navigation a[data-entry=alerts] .count").inner_text() == "1"
    assert page.title() == "(1) Alerts · Holeshot"
    assert seen.axe() == []
    assert seen.overflow_px() <= 0


@pytest.mark.parametrize("width", [1280, 390])
def test_regions_are_compared_where_calls_were_served_in_several(
    demo: Installation, visit: Callable[..., Visit], width: int
) -> None:
    row = {
        "model": MODEL, "n": 800, "n_failed": 8, "n_ttft": 792, "ttft_p50_ms": 210.0, "ttft_p95_ms": 640.0,
        "ttft_p99_ms": 900.0, "total_mean_ms": 2400.0, "extra_per_call": 0.9, "cost_usd": 1.25,
    }  # fmt: skip
    regions: list[dict[str, Any]] = [{**row, "region": "eu-central"}]
    found = {"window": "1h", "data": regions, "sql": "select * from regions_1h"}

    seen = visit(demo, calm=True, width=width)
    seen.page.route("**/api/regions?*", lambda route: route.fulfill(json=found))
    page = seen.open("leaderboard")
    seen.settle()
    assert not page.get_by_role("heading", name="Regions").is_visible()  # there is nothing to compare
    regions.append({**row, "region": None, "ttft_p50_ms": 480.0, "n": 200})
    page.reload()
    seen.settle()
    told = page.locator("section[aria-labelledby=regions]").inner_text()
    assert re.search(r"eu-central.*800.*210\s*ms.*not named.*200.*480\s*ms", told, re.DOTALL), told
    assert seen.axe() == []
    assert seen.overflow_px() <= 0


@pytest.mark.parametrize("name", ["nonsense", "constructor"])
def test_an_address_that_is_no_view_says_so(demo: Installation, visit: Callable[..., Visit], name: str) -> None:
    seen = visit(demo, calm=True)
    page = seen.open(name)
    assert f"There is no view called {name}" in page.locator("main").inner_text()
    assert page.title().endswith("Not found · Holeshot")  # behind the number of open alerts
    assert page.locator("#navigation a[aria-current=page]").count() == 0
    assert seen.complaints == []


def test_a_filter_goes_along_to_other_views_and_back_undoes_it(demo: Installation, visit: Callable[..., Visit]) -> None:
    seen = visit(demo, calm=True)
    page = seen.open("live")
    page.get_by_label("Model").select_option(MODEL)
    page.wait_for_function("hash => location.hash === hash", arg=f"#/live?model={MODEL}")
    assert page.locator("#navigation a[data-entry=calls]").get_attribute("href") == f"#/calls?model={MODEL}"
    page.go_back()
    page.wait_for_function("() => location.hash === '#/live'")
    page.wait_for_selector("main h1")
    assert page.get_by_label("Model").input_value() == ""
