"""What the page shows is what the database has."""

from collections.abc import Callable

from tests.browser.installation import Installation
from tests.browser.visit import Visit

MADE = 4  # calls while the page looks


def test_the_list_of_calls_has_every_call(demo: Installation, visit: Callable[..., Visit]) -> None:
    page = visit(demo).open("calls")
    page.wait_for_selector("main tbody tr")
    links = page.locator("main tbody tr a").evaluate_all("all => all.map(each => each.hash.split('/').pop())")
    stored = {row[0] for row in demo.rows("select id from calls order by started_at desc limit 20")}
    assert stored
    assert {each.replace("-", "") for each in stored} <= {each.replace("-", "") for each in links}


def test_a_call_is_shown_with_all_its_attempts(demo: Installation, visit: Callable[..., Visit]) -> None:
    call_id, launched = demo.rows("select id, launched from calls order by launched desc limit 1")[0]
    deployments = [row[0] for row in demo.rows(f"select deployment from attempts where call_id = '{call_id}'")]
    page = visit(demo).open(f"calls/{call_id}")
    page.wait_for_selector("main section.card")
    said = page.locator("main").inner_text()
    assert len(deployments) == launched
    for deployment in deployments:
        assert deployment in said
    page.get_by_role("button", name="Copy SQL").first.click()
    sql = page.evaluate("() => navigator.clipboard.readText()")
    assert len(demo.rows(sql)) == launched


def test_the_leaderboard_has_every_deployment(demo: Installation, visit: Callable[..., Visit]) -> None:
    page = visit(demo).open("leaderboard")
    page.wait_for_selector("main tbody tr")
    said = page.locator("main").inner_text()
    for (deployment,) in demo.rows("select distinct deployment from attempts"):
        assert deployment in said


def test_lanes_move_and_pause(demo: Installation, visit: Callable[..., Visit]) -> None:
    seen = visit(demo)
    page = seen.open("live")
    page.wait_for_selector("canvas")
    demo.calls(MADE)
    page.wait_for_function("least => document.querySelectorAll('main tbody tr a').length >= least", arg=MADE)
    listed = page.locator("main tbody tr a").evaluate_all("all => all.map(each => each.hash.split('/').pop())")
    assert len(listed) == len(set(listed)) >= MADE
    demo.stored(listed)
    canvas = page.locator("canvas").first
    first = canvas.screenshot()
    page.wait_for_timeout(300)
    assert canvas.screenshot() != first
    page.get_by_role("button", name="Pause").click()
    still = canvas.screenshot()
    page.wait_for_timeout(300)
    assert canvas.screenshot() == still
    assert seen.complaints == []
