"""Keys, titles and colours: what a reader's hands and eyes find in every view."""

from collections.abc import Callable

import pytest

from tests.browser.visit import Visit
from tests.support.browser.installation import MODEL, Installation

FOCUSED = "() => document.activeElement.closest('tbody tr')?.rowIndex"
NAMED = "name => document.title.replace(/^\\(\\d+\\) /, '') === name"  # after the number of open alerts
HUES = """() => {
  const probe = document.body.appendChild(document.createElement("span"));
  const canvas = document.createElement("canvas").getContext("2d");
  const hue = (name) => {
    probe.style.color = `var(${name})`;
    canvas.fillStyle = getComputedStyle(probe).color;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = canvas.getImageData(0, 0, 1, 1).data;
    return Math.atan2(Math.sqrt(3) * (g - b), 2 * r - g - b) * 180 / Math.PI;
  };
  const red = hue("--bad");
  return Array.from({ length: 11 }, (_, at) => Math.abs((hue(`--series-${at}`) - red + 540) % 360 - 180));
}"""
COLOURS = """async () => {
  const { colourOf } = await import("./page/lib/colours.js");
  const { deployments } = await (await fetch("api/session")).json();
  return [...deployments, "not/configured"].map(colourOf);
}"""


def test_a_slash_finds_a_call_by_its_id(demo: Installation, visit: Callable[..., Visit]) -> None:
    [(call_id,)] = demo.rows("select id from calls limit 1")
    seen = visit(demo)
    page = seen.open("live")
    field = page.get_by_label("Find a call by its id")
    assert field.is_visible()
    page.keyboard.press("/")
    assert field.evaluate("each => each === document.activeElement")
    page.keyboard.type(f"{call_id}?jk")  # no key of the page while somebody types
    assert field.input_value() == f"{call_id}?jk"
    field.fill(call_id)
    page.keyboard.press("Enter")
    page.wait_for_selector("main h2:text-is('The race')")
    assert call_id in page.url
    assert seen.complaints == []


@pytest.mark.parametrize("request_id", ["order 7", "7d444840-9dc0-41d1-b245-5ffdce74fad2"])
def test_what_is_no_call_id_is_looked_for_as_a_requests_id(
    demo: Installation, visit: Callable[..., Visit], request_id: str
) -> None:
    page = visit(demo, width=390).open("live")
    page.get_by_label("Find a call by its id").fill(request_id)
    page.keyboard.press("Enter")
    page.wait_for_selector("main h2:text-is('No such call')")
    assert page.get_by_label("Request id").input_value() == request_id


def test_a_question_mark_lists_the_keys_until_escape(demo: Installation, visit: Callable[..., Visit]) -> None:
    seen = visit(demo)
    page = seen.open("configuration")
    page.keyboard.press("?")
    box = page.get_by_role("dialog", name="Shortcuts")
    box.wait_for()
    assert {"/", "j", "k", "?"} <= set(box.locator("kbd").all_inner_texts())
    assert seen.axe("dialog") == []
    page.keyboard.press("Escape")
    box.wait_for(state="detached")
    assert seen.complaints == []


@pytest.mark.parametrize("view", ["calls", "configuration"])
def test_j_and_k_go_from_row_to_row(demo: Installation, visit: Callable[..., Visit], view: str) -> None:
    seen = visit(demo)
    page = seen.open(view)
    seen.settle()
    page.keyboard.press("j")
    first = page.evaluate(FOCUSED)
    page.keyboard.press("j")
    assert page.evaluate(FOCUSED) == first + 1
    page.keyboard.press("k")
    page.keyboard.press("k")
    assert page.evaluate(FOCUSED) == first
    if view == "calls":
        page.keyboard.press("Enter")
        page.wait_for_selector("main h2:text-is('The race')")


def test_control_k_goes_to_what_is_typed(demo: Installation, visit: Callable[..., Visit]) -> None:
    seen = visit(demo)
    page = seen.open("live")
    page.keyboard.press("Control+k")
    page.get_by_role("dialog", name="Go to").wait_for()
    assert seen.axe("dialog") == []
    page.keyboard.type("history of")
    page.get_by_role("option", name=f"History of {MODEL}").wait_for()
    page.keyboard.press("Enter")
    page.wait_for_selector("main[data-view=history]")
    assert page.url.endswith(f"#/history?model={MODEL}")
    page.keyboard.press("Control+k")
    page.keyboard.type("no view is called so")
    page.keyboard.press("Enter")
    page.get_by_text("Nothing is called so").wait_for()
    assert seen.complaints == []


def test_on_a_mac_control_k_is_left_to_text_fields(demo: Installation, visit: Callable[..., Visit]) -> None:
    seen = visit(demo)
    seen.page.add_init_script("Object.defineProperty(navigator, 'platform', { get: () => 'MacIntel' })")
    page = seen.open("live")
    box = page.get_by_role("dialog", name="Go to")
    page.get_by_label("Find a call by its id").focus()
    page.keyboard.press("Control+k")
    assert box.count() == 0
    page.keyboard.press("Meta+k")
    box.wait_for()


def test_keys_that_compose_a_character_are_no_keys_of_the_page(demo: Installation, visit: Callable[..., Visit]) -> None:
    page = visit(demo).open("live")
    page.evaluate("""() => document.body.dispatchEvent(
        new KeyboardEvent("keydown", { key: "?", isComposing: true, bubbles: true }))""")
    assert page.get_by_role("dialog").count() == 0


def test_the_title_names_what_is_shown(demo: Installation, visit: Callable[..., Visit]) -> None:
    [(call_id,)] = demo.rows("select id from calls limit 1")
    page = visit(demo).open("history")
    page.wait_for_function(NAMED, arg=f"History · {MODEL} · Holeshot")
    page.get_by_label("Model").select_option("")
    page.wait_for_function(NAMED, arg="History · Holeshot")
    page.goto(f"{demo.url}/#/calls?client=app")
    page.wait_for_function(NAMED, arg="Calls · app · Holeshot")
    page.goto(f"{demo.url}/#/calls/{call_id}")
    page.wait_for_function("name => document.title.includes(`Call · ${name} · `)", arg=MODEL)


@pytest.mark.parametrize("dark", [False, True])
def test_no_deployment_has_the_red_of_errors(demo: Installation, visit: Callable[..., Visit], dark: bool) -> None:
    page = visit(demo, dark=dark).open("configuration")
    assert min(page.evaluate(HUES)) > 20


def test_everybody_sees_a_deployment_in_the_same_colour(demo: Installation, visit: Callable[..., Visit]) -> None:
    one, other = visit(demo).open("leaderboard"), visit(demo).open("history")
    colours = one.evaluate(COLOURS)
    assert other.evaluate(COLOURS) == colours
    configured = colours[:-1]
    assert len(configured) > 1
    assert len(set(configured)) == len(configured)
