"""Every view, in three widths and both themes: a silent console, no request elsewhere, no objection of axe-core."""

from collections.abc import Callable

import pytest

from tests.browser.installation import Installation
from tests.browser.visit import Visit

VIEWS = ("live", "leaderboard", "calls", "history", "worth", "refusals", "keys", "playground", "configuration")
LOOKS = ((1400, False, True), (900, False, False), (390, True, True))  # width, dark, asking axe-core
SETTLED_MS = 250  # what is drawn after the title


@pytest.mark.parametrize(("width", "dark", "asks"), LOOKS)
def test_every_view_is_clean(
    demo: Installation, visit: Callable[..., Visit], width: int, dark: bool, asks: bool
) -> None:
    seen = visit(demo, width=width, dark=dark)
    for view in VIEWS:
        page = seen.open(view)
        page.wait_for_selector("main [aria-busy=true]", state="detached")
        page.wait_for_timeout(SETTLED_MS)
        assert page.locator("#navigation a[aria-current=page]").get_attribute("href") == f"#/{view}", view
        assert not asks or seen.axe() == [], view
        assert seen.overflow_px() <= 0, view
        assert seen.complaints == [], view


def test_the_description_of_the_api_is_clean(demo: Installation, visit: Callable[..., Visit]) -> None:
    seen = visit(demo)
    seen.page.goto(f"{demo.url}/docs")
    seen.page.wait_for_selector("#listCalls")
    assert seen.axe("header", "nav", "#createChatCompletion", "#listCalls") == []  # a second each: some of the page
    assert seen.complaints == []


def test_every_view_is_reached_by_keyboard(demo: Installation, visit: Callable[..., Visit]) -> None:
    page = visit(demo).open("leaderboard")
    names = page.locator("#navigation a").all_inner_texts()
    reached = []
    for _ in range(len(names) + 6):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("() => document.activeElement.innerText"))
    assert set(names) <= set(reached)
