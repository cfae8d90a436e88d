"""One visit of the page: a window of a size, in a theme, in which everything that goes wrong is written down."""

import base64
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Response

WAIT_MS = 600_000  # on a very busy machine; nothing is asserted of time
_QUIET = """() => new Promise(done => {
  let frames = 0;
  const watcher = new MutationObserver(() => { frames = 0; });
  watcher.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
  const painted = () => ((frames += 1) < 6 ? requestAnimationFrame(painted) : done(watcher.disconnect()));
  requestAnimationFrame(painted);
})"""
_SCROLLING = """() => [...document.querySelectorAll("body, body *:not(pre.code)")].filter(each =>
  each.clientWidth && each.scrollWidth > each.clientWidth + 1 && /auto|scroll/.test(getComputedStyle(each).overflowX)
).map(each => `${each.localName}.${each.className}: ${each.scrollWidth} px in ${each.clientWidth}`)"""
_COLOUR = """async png => {
  const image = new Image();
  image.src = `data:image/png;base64,${png}`;
  await image.decode();
  const canvas = document.createElement("canvas").getContext("2d");
  canvas.drawImage(image, 0, 0);
  return [...canvas.getImageData(0, 0, 1, 1).data];
}"""
_AXE = """within => axe.run(within, {resultTypes: ["violations"]}).then(found => found.violations.flatMap(each =>
  each.nodes.map(node => `${each.id}: ${each.help}: ${node.target}`)))"""


class Visit:
    """A page on a gateway.

    ``complaints`` are console messages, errors, failed and foreign requests, and statuses from 400.
    """

    def __init__(
        self, browser: Browser, url: str, *, width: int = 1400, dark: bool = False, calm: bool = False
    ) -> None:
        """``calm``: little moves, which takes less CPU, for who looks for long and not at what moves."""
        self.url = url.rstrip("/")
        self.complaints: list[str] = []
        self.context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce" if calm else "no-preference",
            permissions=["clipboard-read", "clipboard-write"],
        )
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("requestfailed", self._failed)
        self.page.on("request", self._asked)
        self.page.on("response", self._answered)

    def open(self, view: str) -> Page:
        """Open a view, and wait until its title is there."""
        self.page.goto(f"{self.url}/#/{view}")
        name = view.partition("/")[0]
        self.page.wait_for_selector(f"main[data-view='{name}']", state="attached")  # no longer the view before
        self.page.wait_for_selector("main h1")
        return self.page

    def settle(self) -> None:
        """Wait until nothing of the view loads any more, and six frames have not changed it."""
        self.page.wait_for_selector("main [aria-busy=true]", state="detached")
        self.page.evaluate(_QUIET)

    def sign_in(self, key: str) -> None:
        """Sign in as a person does."""
        self.page.goto(self.url)
        self.page.wait_for_selector("input[type=password]")
        self.complaints.clear()  # that nobody was signed in is told by a 401, which browsers write to the console
        self.page.fill("input[type=password]", key)
        self.page.keyboard.press("Enter")

    def axe(self, *parts: str) -> list[str]:
        """Return what axe-core finds wrong, in the page or in parts of it."""
        if not self.page.evaluate("() => 'axe' in window"):
            self.page.evaluate(_axe())
        return list(self.page.evaluate(_AXE, {"include": [[each] for each in parts or ["html"]]}))

    def overflow_px(self) -> int:
        """Return by how much the page is wider than its window."""
        return int(self.page.evaluate("() => document.documentElement.scrollWidth - innerWidth"))

    def scrolling(self) -> list[str]:
        """Return the parts of the page that are wider than their place and scroll sideways, but for code."""
        return list(self.page.evaluate(_SCROLLING))

    def colour(self, x: float, y: float) -> list[int]:
        """Return what is painted at a place of the window: red, green, blue and alpha."""
        png = self.page.screenshot(clip={"x": x, "y": y, "width": 1, "height": 1})
        blank = self.context.new_page()  # the gateway's own page shows no picture that is not its own
        found = blank.evaluate(_COLOUR, base64.b64encode(png).decode())
        blank.close()
        return list(found)

    def close(self) -> None:
        """Close the window."""
        self.context.close()

    def _said(self, message: ConsoleMessage) -> None:
        self.complaints.append(f"console {message.type}: {message.text}")

    def _failed(self, request: Request) -> None:
        if "ERR_ABORTED" not in str(request.failure):  # a view that was left
            self.complaints.append(f"failed: {request.url}: {request.failure}")

    def _asked(self, request: Request) -> None:
        if urlsplit(request.url).netloc != urlsplit(self.url).netloc:
            self.complaints.append(f"foreign: {request.url}")

    def _answered(self, response: Response) -> None:
        if response.status >= 400:
            self.complaints.append(f"{response.status}: {response.request.method} {response.url}")


@cache
def _axe() -> str:
    """Return axe-core, which a wheel of tools/requirements/browser.lock has."""
    spec = find_spec("axe_playwright_python")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return next(Path(spec.submodule_search_locations[0]).rglob("axe.min.js")).read_text(encoding="utf-8")
