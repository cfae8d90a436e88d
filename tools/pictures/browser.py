"""A window of a real Chromium, which fails the run when the page complains."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright

from tests.support.browser.chromium import HOW
from tests.support.browser.chromium import chromium as chromium_path

_FLAGS = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")  # as containers need them


class NoChromiumError(Exception):
    """There is none on the path."""


class ComplaintError(Exception):
    """The page wrote errors to its console, or threw one."""


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Start one; it ends with the block.

    Raises:
        NoChromiumError: there is none.

    """
    path = chromium_path()
    if path is None:
        raise NoChromiumError(HOW)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=list(_FLAGS))
        yield browser
        await browser.close()


@asynccontextmanager
async def window(
    browser: Browser, *, height: int, width: int = 1280, theme: str = "light", scale: float = 1.0
) -> AsyncIterator[Page]:
    """Open one of ``width`` by ``height`` CSS pixels.

    Raises:
        ComplaintError: by the end of the block the page had complained.

    """
    context = await browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if theme == "dark" else "light",
        device_scale_factor=scale,
    )
    page = await context.new_page()
    complaints: list[str] = []

    def said(message: ConsoleMessage) -> None:
        if message.type == "error":
            complaints.append(message.text)

    page.on("console", said)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    await context.close()
    if complaints:
        raise ComplaintError("; ".join(complaints))
