"""A Chromium, a gateway that is open on loopback, and one with keys."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.chromium import chromium
from tests.browser.installation import KEYS, Installation, installed, people

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.browser.visit import Visit

CALLS = 16
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


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """A gateway without clients, which has answered some calls."""
    with installed(tmp_path_factory.mktemp("demo") / "gateway") as installation:
        assert set(installation.calls(CALLS)) == {200}
        yield installation


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """A gateway with an admin, a viewer and a client."""
    with installed(tmp_path_factory.mktemp("guarded") / "gateway", **people()) as installation:
        assert set(installation.calls(6, key=KEYS["app"])) == {200}
        yield installation


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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that is not there yet."""
    return tmp_path / "gateway"
