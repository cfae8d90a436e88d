"""The playground with answers that are no plain text, failures, a keyboard, and calls that follow each other."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.upstream import APART_S, BEGINNING, ENDLESS, HANG, HELD, MARKUP, odd_fleet, odd_upstream
from tests.browser.visit import Visit
from tests.support.browser.installation import KEYS, Installation, installed

if TYPE_CHECKING:
    from playwright.sync_api import Page

RECORDED = "**/api/calls/*"  # a call as it was recorded
# What its page says of a call whose first token was held, of its row.
WHY = """async ([held, awaited, gain]) => {
  const { ms } = await import("./page/lib/format.js");
  return `Held ${ms(held)}: ${awaited} usually finishes ${ms(gain)} sooner after its first token.`;
}"""


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("odd") / "gateway"
    with odd_upstream() as url, installed(folder, migrated_file, **odd_fleet(url)) as installation:
        yield installation


def ask(page: "Page", model: str) -> str:
    page.get_by_label("Model").select_option(model)
    page.get_by_role("button", name="Send").click()
    page.wait_for_selector(".reply:not([aria-busy])")  # it is busy from the click on
    return str(page.locator(".reply").inner_text())


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("markup", MARKUP),
        ("tools", 'calls the tool weather {"city": "Oslo"}'),
        ("refusal", "I would rather not."),
        ("short", "Once upon a … cut at the limit of tokens"),
    ],
)
def test_every_kind_of_answer_is_shown_as_text(
    odd: Installation, visit: Callable[..., Visit], model: str, said: str, stream: bool
) -> None:
    seen = visit(odd, width=390)
    page = seen.open("playground")
    page.get_by_label("Stream the answer").set_checked(stream)
    assert ask(page, model).strip() == said
    assert page.evaluate("() => window.broken") is None
    assert seen.overflow_px() <= 0
    assert seen.complaints == []


def test_a_failure_is_told_in_the_gateways_words(odd: Installation, visit: Callable[..., Visit]) -> None:
    page = visit(odd).open("playground")
    ask(page, "down")
    assert "out of order" in page.get_by_role("alert").inner_text()


def test_a_model_that_a_link_names_is_the_one_that_is_asked(odd: Installation, visit: Callable[..., Visit]) -> None:
    page = visit(odd).page
    page.goto(f"{odd.url}/#/playground?model=gone")
    assert page.get_by_label("Model").input_value() == "gone"
    page.get_by_role("button", name="Send").click()
    assert "'gone' does not exist" in page.get_by_role("alert").inner_text()


def test_figures_of_an_earlier_call_are_not_drawn_under_a_later_one(
    odd: Installation, visit: Callable[..., Visit]
) -> None:
    seen = visit(odd)
    page = seen.open("playground")
    held: list[Any] = []
    page.route(RECORDED, lambda route: held.append(route))  # noqa: PLW0108 - Playwright sets attributes on it
    with page.expect_request(RECORDED):
        ask(page, "markup")
    with page.expect_request(RECORDED):
        ask(page, "refusal")
    first, *_ = held
    with page.expect_response(first.request.url):
        first.continue_()
    seen.settle()
    assert page.locator(".stats").count() == 0


def test_an_answer_is_stopped(odd: Installation, visit: Callable[..., Visit]) -> None:
    page = visit(odd).open("playground")
    page.get_by_label("Model").select_option(ENDLESS)
    page.get_by_role("button", name="Send").click()
    page.locator(".reply").get_by_text(BEGINNING).wait_for()
    page.get_by_role("button", name="Stop").click()
    page.locator(".reply").get_by_text("stopped").wait_for()
    call_id = str(page.get_by_role("link", name="Open the call").get_attribute("href")).rpartition("/")[2]
    assert odd.ended(call_id) == (1, 499)


def test_stop_is_reached_by_keyboard_and_leaves_the_focus_where_it_was(
    odd: Installation, visit: Callable[..., Visit]
) -> None:
    page = visit(odd).open("playground")
    page.get_by_label("Model").select_option(ENDLESS)
    page.get_by_label("Prompt").focus()
    page.keyboard.press("Control+Enter")
    page.locator(".reply").get_by_text(BEGINNING).wait_for()
    page.get_by_role("button", name="Stop").focus()
    page.keyboard.press("Enter")
    page.locator(".reply").get_by_text("stopped").wait_for()
    assert page.evaluate("() => document.activeElement.innerText") == "Send"
    page.wait_for_selector(".stats")
    assert "no deployment answered" not in page.locator(".stats").inner_text()


def test_the_page_of_a_call_says_why_its_first_token_was_held(odd: Installation, visit: Callable[..., Visit]) -> None:
    for provider in [*APART_S] * 4:  # their speeds are learnt
        body = {"model": HELD, "stream": True, "messages": [{"role": "user", "content": "Why race?"}]}
        body |= {"provider": {"only": [provider]}}
        assert odd.ask("/v1/chat/completions", body=body)[0] == 200
    page = visit(odd).open("playground")
    page.get_by_label("Prompt").fill(HANG)
    ask(page, HELD)
    link = page.get_by_role("link", name="Open the call")
    call_id = str(link.get_attribute("href")).rpartition("/")[2]
    assert odd.ended(call_id) == (2, 200)
    ids = f"'{call_id}', '{call_id.replace('-', '')}'"
    [(held_ms, held_for, gain_ms)] = odd.rows(f"select held_ms, held_for, held_gain_ms from calls where id in ({ids})")
    assert held_for == "quick/quick"
    assert held_ms > 0
    link.click()
    said = page.locator("section[aria-labelledby=race] header").get_by_text("Held ").inner_text()
    assert said == page.evaluate(WHY, [held_ms, held_for, gain_ms])


def test_the_command_to_copy_runs_as_it_is(guarded: Installation, visit: Callable[..., Visit], tmp_path: Path) -> None:
    seen = visit(guarded)
    seen.sign_in(KEYS["root"])
    seen.page.wait_for_selector("#navigation a[href='#/playground']")
    page = seen.open("playground")
    page.get_by_label("Prompt").fill("It's \"5 o'clock\": $HOME `id` \\n\nwhy?")
    assert "export HOLESHOT_KEY=hs-" in page.locator("main").inner_text()
    command = page.get_by_label("The same call for a program").inner_text()
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "HOLESHOT_KEY": KEYS["root"]}
    said = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, check=True).stdout
    assert said.rstrip().endswith("data: [DONE]")
    page.get_by_role("button", name="Python", exact=True).click()
    code = page.get_by_label("The same call for a program").inner_text()
    compile(code, "snippet.py", "exec")
