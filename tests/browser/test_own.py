"""A person signs in at the company's provider, and sees their own calls, what they cost, and nobody else's."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.visit import Visit
from tests.identity import AUDIENCE, PAGE_ID, PAGE_SECRET, Identity
from tests.support.browser.installation import installed, people
from tests.support.servers import free_port


@pytest.fixture
def issuer() -> Iterator[Identity]:
    """An identity provider in a thread of its own."""
    identity, begun = Identity(), threading.Event()
    loop, end = asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        async with identity:
            begun.set()
            await end.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    begun.wait()
    yield identity
    loop.call_soon_threadsafe(end.set)
    thread.join()
    loop.close()


def company(issuer: Identity, port: int) -> dict[str, Any]:
    """Settings in which an issuer's people are the client ``app``, and sign in to the page at this port."""
    settings = people()
    settings["page"] |= {
        "public_url": f"http://127.0.0.1:{port}",
        "sign_in": {"issuer": issuer.url, "client_id": PAGE_ID, "client_secret": PAGE_SECRET, "viewers": ["staff"]},
        "people": ["company"],
    }
    entry = {"issuer": issuer.url, "audience": AUDIENCE, "client": "app", "end_user": "sub"}
    return {**settings, "port": port, "issuers": {"company": entry}}


def test_a_person_signs_in_and_sees_their_own_calls_and_what_they_cost(
    issuer: Identity, tmp_path: Path, migrated_file: Path, visit: Callable[..., Visit]
) -> None:
    port = free_port()
    with installed(tmp_path / "gateway", migrated_file, **company(issuer, port)) as running:
        issuer.claims = {"sub": "ann", "email": "ann@example.com", "groups": ["eng"]}
        assert [running.call(key=issuer.token(sub="ann")) for _ in range(3)] == [200] * 3
        assert running.call(key=issuer.token(sub="bob")) == 200
        running.await_rows("select 1 from calls", 4)
        ids = [str(row[0]) for row in running.rows("select id from calls")]
        for dark, width in ((False, 1400), (True, 390)):
            seen = visit(running, dark=dark, width=width)
            page = seen.page
            page.goto(seen.url)
            page.get_by_role("link", name="Sign in with your account").click()
            page.wait_for_selector("main[data-view='own'] #own-models")
            seen.complaints.clear()  # that nobody was signed in was told by a 401
            seen.settle()
            assert "3 calls" in page.locator("main").inner_text()
            assert "US dollars" not in page.locator("main").inner_text()  # the limits of the team are not theirs
            assert "Requests a minute" in page.locator("main").inner_text()
            menu = page.locator("#navigation a").evaluate_all("all => all.map(each => each.dataset.view)")
            assert menu == ["own", "calls"]
            assert (seen.axe(), seen.overflow_px(), seen.scrolling()) == ([], 0, [])
            page.get_by_role("link", name="Each of these calls").click()
            page.wait_for_selector("main[data-view='calls'] tbody tr")
            seen.settle()
            assert page.locator("main tbody tr").count() == 3
            assert page.get_by_label("Client", exact=True).count() == 0
            assert (seen.axe(), seen.overflow_px()) == ([], 0)
            page.locator("main tbody a").first.click()
            page.wait_for_selector("main .call h1")
            seen.settle()
            assert seen.axe() == []
            assert seen.complaints == []
            for view in ("live", "keys", "configuration"):
                page.goto(f"{seen.url}/#/{view}")
                page.get_by_role("heading", name="Not found").wait_for()
            foreign = """async id => (await fetch(`api/calls/${id}`)).status"""
            statuses = sorted(page.evaluate(foreign, each) for each in ids)
            assert statuses == [200, 200, 200, 404]
            if width > 1000:
                page.get_by_role("button", name="Sign out").click()
                page.wait_for_url(f"{issuer.url}/end**")


def test_a_session_that_ends_is_renewed_at_the_provider_in_the_same_view_until_the_person_is_removed_there(
    issuer: Identity, tmp_path: Path, migrated_file: Path, visit: Callable[..., Visit]
) -> None:
    port = free_port()
    with installed(tmp_path / "gateway", migrated_file, **company(issuer, port)) as running:
        issuer.claims = {"sub": "ann", "email": "ann@example.com", "groups": ["eng"]}
        seen = visit(running)
        page = seen.page
        page.goto(seen.url)
        page.get_by_role("link", name="Sign in with your account").click()
        page.wait_for_selector("main[data-view='own']")
        page.context.clear_cookies(name="holeshot-person")  # as a browser does at its end
        with page.expect_response(lambda each: "/api/signed-in" in each.url):
            page.locator("#navigation a[data-view='calls']").click()
        page.wait_for_selector("main[data-view='calls'] h1")
        assert page.evaluate("window.location.hash").startswith("#/calls")
        assert "holeshot-person" in {each["name"] for each in page.context.cookies()}
        issuer.must_ask = True
        page.context.clear_cookies(name="holeshot-person")
        page.locator("#navigation a[data-view='own']").click()
        page.get_by_role("link", name="Sign in with your account").wait_for()
        assert page.locator("#navigation a").count() == 0
        seen.complaints.clear()  # that nobody was signed in was told by a 401
