"""A Chromium, a gateway that is open on loopback, one with keys, and one that nobody has called."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.browser.chromium import chromium
from tests.support.browser.installation import KEYS, MODEL, Installation, installed, people

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.browser.visit import Visit

CALLS: Mapping[str, int] = {"guarded": 6, "demo": 16, "fresh": 0}  # of each gateway, before its first test
TARGETS: Mapping[str, Any] = {  # of the demo: kept, missed, and without calls
    "answered": {"objective": 0.5},
    "strict": {"model": MODEL, "ttft_ms": 10, "tok_s": 4000, "gap_ms": 1},
    "spoken": {"profile": "voice"},
}
collect_ignore_glob = [] if chromium() and find_spec("playwright") else ["test_*.py"]


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """One Chromium for all tests."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - where it is installed

    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]  # root in a container has no sandbox
        browser = playwright.chromium.launch(executable_path=chromium(), args=arguments)
        yield browser
        browser.close()


@pytest.fixture(scope="session", autouse=True)
def gateways(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, migrated_file: Path
) -> "Iterator[Mapping[str, Future[Installation]]]":
    """Those that the chosen tests ask for, by fixture: all start at once, beside the browser and the first tests."""
    asked = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}

    def start(name: str) -> Installation:
        guarded = name == "guarded"
        more = people() if guarded else {"slo": TARGETS} if name == "demo" else {}
        running = installed(folders[name] / "gateway", migrated_file, **more)
        installation = stack.enter_context(running)
        assert set(installation.calls(CALLS[name], key=KEYS["app"] if guarded else None)) <= {200}
        return installation

    with ExitStack() as stack, ThreadPoolExecutor(len(CALLS)) as pool:
        folders = {name: tmp_path_factory.mktemp(name) for name in CALLS if name in asked}
        yield {name: pool.submit(start, name) for name in folders}


@pytest.fixture(scope="session")
def demo(gateways: "Mapping[str, Future[Installation]]") -> Installation:
    """A gateway without clients, which has answered some calls."""
    return gateways["demo"].result()


@pytest.fixture(scope="session")
def guarded(gateways: "Mapping[str, Future[Installation]]") -> Installation:
    """A gateway with an admin, a viewer and a client."""
    return gateways["guarded"].result()


@pytest.fixture(scope="session")
def fresh(gateways: "Mapping[str, Future[Installation]]") -> Installation:
    """A gateway which nobody has called: for one test."""
    return gateways["fresh"].result()


@pytest.fixture
def visit(browser: "Browser") -> "Iterator[Callable[..., Visit]]":
    """Open windows, which are closed at the end of the test."""
    from tests.browser.visit import Visit  # noqa: PLC0415 - where Playwright is installed

    opened: list[Visit] = []

    def open_window(where: Installation | str, **options: Any) -> Visit:
        url = where if isinstance(where, str) else where.url
        opened.append(Visit(browser, url, **options))
        return opened[-1]

    yield open_window
    for each in opened:
        each.close()
