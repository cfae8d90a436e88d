"""Who may look: signing in and out, viewers, and a key that ends while its page is open."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from gateway.admin.sign_in import page_of
from gateway.core.errors import SignInRefused
from gateway.settings import ClientRole, Profile
from tests.browser.visit import Visit
from tests.support.browser.installation import KEYS, Installation

if TYPE_CHECKING:
    from playwright.sync_api import Route

WRONG = "hs-nobody-has-this"


def test_an_admin_signs_in_and_out(guarded: Installation, visit: Callable[..., Visit]) -> None:
    seen = visit(guarded)
    seen.sign_in(KEYS["root"])
    seen.page.wait_for_selector("#navigation a[href='#/keys']")
    assert seen.complaints == []
    seen.page.reload()
    seen.page.wait_for_selector("#navigation a[href='#/keys']")
    assert KEYS["root"] not in seen.page.content()
    seen.page.get_by_role("button", name="Sign out").click()
    seen.page.wait_for_selector("input[type=password]")
    seen.page.reload()
    seen.page.wait_for_selector("input[type=password]")


def test_the_form_to_sign_in_is_clean_and_says_what_is_wrong(
    guarded: Installation, visit: Callable[..., Visit]
) -> None:
    for dark, width in ((False, 1400), (True, 390)):
        seen = visit(guarded, dark=dark, width=width)
        seen.sign_in(WRONG)
        seen.page.get_by_role("alert").first.wait_for()
        assert "unknown" in seen.page.get_by_role("alert").first.inner_text().lower()
        assert seen.axe() == []
        assert seen.overflow_px() <= 0


def test_the_key_of_a_client_does_not_open_it(guarded: Installation, visit: Callable[..., Visit]) -> None:
    seen = visit(guarded)
    seen.sign_in(KEYS["app"])
    seen.page.get_by_role("alert").first.wait_for()
    assert "viewer" in seen.page.get_by_role("alert").first.inner_text()


def test_a_viewer_looks_and_changes_nothing(guarded: Installation, visit: Callable[..., Visit]) -> None:
    seen = visit(guarded)
    seen.sign_in(KEYS["guest"])
    seen.page.wait_for_selector("#navigation a[href='#/leaderboard']")
    assert seen.page.locator("#navigation a[href='#/keys']").count() == 0
    sent = """() => fetch("api/keys", {
        method: "POST", headers: {"content-type": "application/json"}, body: "{}",
    }).then(each => each.status)"""
    assert seen.page.evaluate(sent) == 403


def test_a_revoked_key_ends_its_pages(guarded: Installation, visit: Callable[..., Visit]) -> None:
    status, made = guarded.ask("/admin/keys", key=KEYS["root"], body={"name": "leaving", "role": "viewer"})
    assert status == 201
    seen = visit(guarded)
    seen.sign_in(made["key"])
    seen.page.wait_for_selector("#navigation a[href='#/leaderboard']")
    assert guarded.ask("/admin/keys/leaving", key=KEYS["root"], method="DELETE")[0] == 200
    seen.page.reload()
    seen.page.wait_for_selector("input[type=password]")


@pytest.mark.parametrize(("dark", "width"), [(False, 1400), (True, 390)])
def test_who_is_not_let_in_from_the_provider_reads_a_page_like_the_others(
    guarded: Installation, visit: Callable[..., Visit], dark: bool, width: int
) -> None:
    error = SignInRefused("none of your groups may look at this page: ask the operator")
    error.person = "ann@example.com", ("guests", "g" * 80)
    told = page_of(error, guarded.url)
    seen = visit(guarded, dark=dark, width=width)
    seen.page.route(
        "**/api/signed-in",
        lambda route: route.fulfill(status=told.status, headers=dict(told.headers), body=told.text or ""),
    )
    seen.page.goto(f"{guarded.url}/api/signed-in")
    seen.page.get_by_role("alert").wait_for()
    assert "ann@example.com, in the groups guests, ggg" in seen.page.locator("main").inner_text()
    card = seen.page.locator("main section").evaluate("each => getComputedStyle(each).borderTopLeftRadius")
    assert card != "0px"  # the page's own style
    assert seen.axe() == []
    assert seen.overflow_px() <= 0
    assert not [each for each in seen.complaints if "signed-in" not in each and "403" not in each]
    seen.page.get_by_role("link", name="Back to the page").click()
    seen.page.wait_for_selector("input[type=password]")


def test_a_key_is_made_and_revoked(guarded: Installation, visit: Callable[..., Visit]) -> None:
    seen = visit(guarded)
    seen.sign_in(KEYS["root"])
    page = seen.page
    page.wait_for_selector("#navigation a[href='#/keys']")
    seen.open("keys")
    page.get_by_role("button", name="New key").click()
    assert seen.axe() == []
    roles = page.locator("dialog").get_by_label("Role").locator("option")
    assert roles.evaluate_all("all => all.map(each => each.value)") == list(ClientRole)
    page.get_by_label("Name").fill("made-here")
    page.get_by_label("Requests a minute").fill("60")
    page.get_by_role("button", name="Make the key").click()
    key = page.locator("dialog input[readonly]").input_value()
    page.get_by_role("button", name="Done").click()
    assert guarded.call(key=key) == 200
    page.get_by_role("button", name="Revoke: made-here").click()
    page.locator("dialog input").fill("made-here")
    page.locator("dialog").get_by_role("button", name="Revoke").click()
    page.locator("dialog").wait_for(state="detached")
    assert guarded.call(key=key) == 401
    assert seen.complaints == []


def test_a_key_is_made_for_a_team_and_moved_to_another_profile(
    guarded: Installation, visit: Callable[..., Visit]
) -> None:
    seen = visit(guarded)
    seen.sign_in(KEYS["root"])
    page = seen.page
    page.wait_for_selector("#navigation a[href='#/keys']")
    seen.open("keys")
    app = page.locator("section.client", has=page.get_by_role("heading", name="app", exact=True))
    assert "Team: research" in app.inner_text()
    page.get_by_role("button", name="New key").click()
    form = page.locator("dialog")
    profiles = form.get_by_label("Profile").locator("option")
    assert profiles.evaluate_all("all => all.map(each => each.value)") == ["", *Profile]
    assert form.get_by_label("Team").locator("option").evaluate_all("all => all.map(each => each.value)") == [
        "",
        "research",
    ]
    form.get_by_label("Name").fill("of-a-team")
    form.get_by_label("Team").select_option("research")
    form.get_by_label("Profile").select_option("voice")
    form.get_by_label("Priority").fill("3")
    assert seen.axe() == []
    form.get_by_role("button", name="Make the key").click()
    key = form.locator("input[readonly]").input_value()
    form.get_by_role("button", name="Done").click()
    card = page.locator("section.client", has=page.get_by_role("heading", name="of-a-team", exact=True))
    card.get_by_text("Team: research").wait_for()
    assert {"profile voice", "priority 3"} <= set(card.locator("header p").inner_text().split(" · "))
    assert guarded.call(key=key) == 200
    guarded.await_rows(
        "select id from calls where client = 'of-a-team' and json_extract(tags, '$.team') = 'research'", 1
    )
    page.get_by_role("button", name="Change: of-a-team").click()
    form.get_by_label("Team").select_option("")
    form.get_by_label("Profile").select_option("agent")
    form.get_by_label("Requests a minute").fill("7")
    form.get_by_role("button", name="Save").click()
    form.wait_for(state="detached")
    card.get_by_text("profile agent").wait_for()
    found = guarded.ask("/admin/keys/of-a-team", key=KEYS["root"])[1]
    assert (found.get("team"), found["profile"], found["priority"], found["rpm"]) == (None, "agent", 3, 7)
    assert seen.complaints == []


def test_a_new_key_is_copied_also_where_browsers_have_no_clipboard(
    guarded: Installation, visit: Callable[..., Visit]
) -> None:
    seen = visit(guarded)
    seen.page.add_init_script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")  # plain HTTP
    seen.sign_in(KEYS["root"])
    page = seen.page
    page.wait_for_selector("#navigation a[href='#/keys']")
    seen.open("keys")
    page.get_by_role("button", name="New key").click()
    page.get_by_label("Name").fill("copied-here")
    page.get_by_role("button", name="Make the key").click()
    key = page.locator("dialog input[readonly]").input_value()
    page.get_by_role("button", name="Copy the key").click()
    page.get_by_text("Copied.").wait_for()
    other = seen.context.new_page()
    other.bring_to_front()
    other.goto(guarded.url)
    assert other.evaluate("() => navigator.clipboard.readText()") == key


def test_a_viewer_sees_what_teams_end_users_and_models_used(guarded: Installation, visit: Callable[..., Visit]) -> None:
    def limit(route: "Route") -> None:
        response = route.fetch()
        told = response.json()
        assert told["models"] == []  # those of this installation have none
        standings = [
            {"limit": "usd_per_day", "of": 4.0, "used": 3.5, "resets_in_s": 60.0},
            {"limit": "tokens_total", "of": 9e6, "used": None, "resets_in_s": None},
        ]
        told["models"] = [{"model": "limited", "limits": standings}]
        [ann] = [each for team in told["data"] for each in team["dearest"] if each["name"] == "ann"]
        assert [each["limit"] for each in ann["limits"]] == ["rpm"]
        ann["limits"] = [{**ann["limits"][0], "used": 150.0}, {"limit": "tpm", "of": 9.0, "used": 1.0}]
        route.fulfill(response=response, json=told)

    for user in ("ann", "somebody@example.com"):
        assert guarded.call(key=KEYS["app"], user=user) == 200
    guarded.await_rows("select id from calls where tags like '%end_user%'", 2)
    for dark, width in ((False, 1400), (True, 390)):
        seen = visit(guarded, dark=dark, width=width)
        seen.sign_in(KEYS["guest"])
        seen.page.wait_for_selector("#navigation a[href='#/teams']", state="attached")
        seen.page.route("**/api/teams?*", limit)
        page = seen.open("teams")
        page.get_by_role("cell", name="ann").or_(page.get_by_role("rowheader", name="ann")).first.wait_for()
        told = page.locator("main").inner_text()
        assert "research" in told
        assert "of 600" in told
        assert "150 of 200" in told  # of what an end user has used, what is nearest to its limit
        card = page.locator("section.client", has=page.get_by_role("heading", name="limited", exact=True))
        assert re.search(r"\$3\.50? of \$4", card.inner_text())
        assert "at most" in card.inner_text()
        assert "somebody" not in page.content()
        assert seen.axe() == []
        assert seen.overflow_px() <= 0
        assert seen.complaints == []


def test_where_nobody_has_a_team_there_is_no_view_of_them(demo: Installation, visit: Callable[..., Visit]) -> None:
    seen = visit(demo)
    seen.open("leaderboard")
    assert seen.page.locator("#navigation a[href='#/teams']").count() == 0
