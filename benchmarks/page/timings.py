"""How soon each view of the page is drawn, from the click or the address to what is seen."""

from statistics import median
from typing import Any

import msgspec
from playwright.async_api import Page
from rich.console import Console

from benchmarks.harness.report import grid, print_json
from benchmarks.page.browser import chromium, window

GOAL_MS = 500.0
LIMIT_MS = 15_000
# The first screen of each view: what this finds has the gateway's data, or says that there are none.
VIEWS = {
    "live": "main .chip[title*='orkers']",  # the stream is open; lanes and figures follow from it
    "leaderboard": "main .board tbody tr",
    "calls": "main .calls tbody tr, main .calls .empty",
    "calls/ID": "#race",
    "history": "main .history canvas, main .empty",
    "worth": "main .strips, main .empty",
    "replay": "main .whatif, main .empty",
    "targets": "main .card",
    "alerts": "main .card",
    "refusals": "main #refused, main .empty",
    "keys": "main .client, main .empty",
    "playground": "main form",
    "configuration": "main .card",
}
# Timed inside the page: no message to the browser is in the figures. A change is painted by the end of the next frame.
_WATCH = """
window.firstScreen = (drawn, from) => new Promise((done, fail) => {
  const found = {};
  const look = () => {
    if (document.querySelector('main .failed')) fail(new Error(document.querySelector('main .failed').textContent));
    if (!document.querySelector('main h1')) return;
    if (!('first' in found) && document.querySelector(drawn)) { found.first = null; painted('first'); }
    if (!('whole' in found) && 'first' in found && !document.querySelector('main [aria-busy=true]')) {
      found.whole = null;
      painted('whole');
    }
  };
  const painted = (name) => requestAnimationFrame(() => setTimeout(() => {
    found[name] = performance.now() - from;
    if (found.first && found.whole) { watcher.disconnect(); done(found); }
  }));
  const watcher = new MutationObserver(look);
  watcher.observe(document, { subtree: true, childList: true, attributes: true });
  look();
});
window.turnTo = (view, drawn) => {
  const from = performance.now();
  document.querySelector('main').replaceChildren();  // the view before must not be taken for it
  location.hash = view;
  return window.firstScreen(drawn, from);
};
"""


class Timing(msgspec.Struct, frozen=True):
    """Medians of one view, in milliseconds."""

    view: str
    opened_ms: float  # from its address to its first screen
    opened_whole_ms: float  # until nothing of it loads any more
    turned_ms: float  # from another view to its first screen
    turned_whole_ms: float
    slowest_ms: float  # of all first screens

    @property
    def holds(self) -> bool:
        """Whether it was quick enough."""
        return max(self.opened_ms, self.turned_ms) <= GOAL_MS


async def time_views(url: str, visits: int, *, as_json: bool) -> None:
    """Visit each view of the gateway at ``url`` and print a table."""
    url = url.rstrip("/")
    async with chromium() as browser, window(browser, height=900) as page:
        await page.add_init_script(_WATCH)
        await page.goto(url)
        await page.wait_for_selector("#navigation a")
        names = await page.eval_on_selector_all("#navigation a", "all => all.map(each => each.dataset.view)")
        calls = await (await page.request.get(f"{url}/api/calls?limit=1&window=30d")).json()
        ids = [call["id"] for call in calls["data"]]
        wanted = [name for name in VIEWS if name in names or (name == "calls/ID" and ids)]
        found = [await _time(page, url, name, ids, visits) for name in wanted]
    if as_json:
        print_json(found)
    else:
        _show(found, visits)


async def _time(page: Page, url: str, name: str, ids: list[str], visits: int) -> Timing:
    address = f"#/{name.replace('ID', ids[0]) if ids else name}"
    other = "#/calls" if name == "refusals" else "#/refusals"
    opened, turned = [], []
    for _ in range(visits + 1):
        await page.goto("about:blank")
        await page.goto(f"{url}/{address}", wait_until="commit")
        opened.append(await _seen(page, "([drawn]) => firstScreen(drawn, 0)", [VIEWS[name]]))
        await page.goto(f"{url}/{other}")
        await page.wait_for_selector("main h1")
        await page.wait_for_timeout(300)
        turned.append(await _seen(page, "([view, drawn]) => turnTo(view, drawn)", [address, VIEWS[name]]))
    opened, turned = opened[1:], turned[1:]  # the first fills the browser's cache
    return Timing(
        view=name,
        opened_ms=median(each["first"] for each in opened),
        opened_whole_ms=median(each["whole"] for each in opened),
        turned_ms=median(each["first"] for each in turned),
        turned_whole_ms=median(each["whole"] for each in turned),
        slowest_ms=max(each["first"] for each in (*opened, *turned)),
    )


async def _seen(page: Page, expression: str, arguments: list[str]) -> dict[str, float]:
    page.set_default_timeout(LIMIT_MS)
    found: dict[str, Any] = await page.evaluate(expression, arguments)
    return found


def _show(found: list[Timing], visits: int) -> None:
    columns = ("view", "opened", "all of it", "from another view", "all of it", "slowest", "goal", "")
    table = grid(f"ms until a view is drawn, warm, median of {visits}", columns, ())
    for each in found:
        figures = (each.opened_ms, each.opened_whole_ms, each.turned_ms, each.turned_whole_ms, each.slowest_ms)
        told = "ok" if each.holds else "[red]missed[/red]"
        table.add_row(each.view, *(f"{ms:,.0f}" for ms in figures), f"{GOAL_MS:.0f}", told)
    Console(width=110).print(table)
