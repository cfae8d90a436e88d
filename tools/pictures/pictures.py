"""The pictures of README.md: stills of a few views by day and by night, and the lanes of live races in motion."""

import asyncio
import base64
import random
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from playwright.async_api import Browser, Page

from gateway.ledger import migrate
from gateway.server import simulated_fleet
from tests.support.browser.installation import MODEL, installed
from tools.installing import python_tool
from tools.pictures import race
from tools.pictures.browser import chromium, window

CALLS_PER_S = 6.0
SHORT_TOKENS, APART_S = 60, 2.0  # of slow calls
PROMPTS = ("Why race?", "Summarize this page.", "What is a holeshot?", "Write a haiku about latency.", "Translate: go!")
PILLOW = "pillow==13.0.0"
THEMES = ("light", "dark")
MOST_STILL_BYTES = 200_000
MOST_MOVING_BYTES = 1_500_000
MOVING_S = 7.0
LANES_FILLED_S = 12.0  # of the 15 seconds that the lanes show
LANES_PX, LANES_SCALE = 820, 1.5  # the window of the moving ones: their words are read in a README
_JOIN = Path(__file__).with_name("join_frames.py")


class TooLargeError(Exception):
    """A picture is too large for a repository."""


class Frame(msgspec.Struct, frozen=True):
    """A picture of the window, and when it was painted, in seconds."""

    png: bytes
    at_s: float


async def draw_races(folder: Path) -> None:
    """Write the moving picture of the site's first page into ``folder``."""
    async with (
        simulated_fleet() as base_urls,
        _installed(**_raced_by_three(base_urls)) as url,
        called(url, one_by_one),
    ):
        drawing = race.draw(await race.watch(url))
    await asyncio.to_thread((folder / "racing.svg").write_text, drawing)


async def take(folder: Path, warm_up_s: float, *, stills: bool) -> None:
    """Write them into ``folder``: the lanes, and ``stills`` of other views.

    Raises:
        TooLargeError: one is too large.

    """
    pillow = await asyncio.to_thread(python_tool, "pillow", PILLOW)
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    async with _installed() as url, chromium() as browser:
        async with called(url, one_by_one):
            frames, stage = await _lanes(browser, url)
        if stills:
            _say(f"{url}: calls for {warm_up_s:.0f} s")
            async with called(url, by_chance):
                await asyncio.sleep(warm_up_s)
                for theme in THEMES:
                    await _stills(browser, url, folder, theme)
    moving = folder / "lanes.webp"
    await asyncio.to_thread(_join, pillow / "python", frames, stage, moving)
    _hold(moving, MOST_MOVING_BYTES)


@asynccontextmanager
async def _installed(**config: Any) -> AsyncIterator[str]:
    """Run a gateway before the simulated fleet, as started without a key or by ``config``, and yield its address."""
    with tempfile.TemporaryDirectory(prefix="holeshot-page-") as name:
        folder = Path(name)
        await migrate(f"sqlite:///{folder / 'ledger.db'}")
        with installed(folder / "gateway", folder / "ledger.db", **config) as installation:
            yield installation.url


def _raced_by_three(base_urls: Mapping[str, str]) -> dict[str, Any]:
    """Return settings under which each call may be raced by three, and losers are cancelled, not audited."""
    race_settings = {"budget": race.WIDTH - 1, "audit_share": 0}
    return {
        "providers": {name: {"apis": ["chat"], "base_url": url} for name, url in base_urls.items()},
        "models": {MODEL: {"deployments": [f"{name}/{MODEL}" for name in base_urls], "race": race_settings}},
    }


async def _stills(browser: Browser, url: str, folder: Path, theme: str) -> None:
    async with window(browser, height=700, theme=theme) as page:
        await page.goto(f"{url}/#/leaderboard")
        await page.wait_for_selector(".board tbody tr")
        await _still(page, folder / f"leaderboard-{theme}.png")
        await page.goto(f"{url}/#/calls/{await _telling_call(page, url)}")
        await page.wait_for_selector("#race")
        await _still(page, folder / f"call-{theme}.png")


async def _telling_call(page: Page, url: str) -> str:
    """Return the id of a call of which most attempts ran, the slowest of these to send a first token."""
    response = await page.request.get(f"{url}/api/calls?window=1h&outcome=ok&limit=200")
    calls: list[dict[str, Any]] = (await response.json())["data"]
    stored = [call for call in calls if call["is_stored"] and call["ttft_ms"] is not None]
    return str(max(stored, key=lambda call: (call["launched"], call["ttft_ms"]))["id"])


async def _still(page: Page, path: Path) -> None:
    await page.mouse.move(0, 0)
    await page.wait_for_timeout(1200)  # figures are drawn once a second
    await page.screenshot(path=path)
    _hold(path, MOST_STILL_BYTES)


async def _lanes(browser: Browser, url: str) -> tuple[list[Frame], dict[str, float]]:
    """Return what was painted in a few seconds, and where the lanes are: x, y, width, height."""
    async with window(browser, width=LANES_PX, height=520, theme="dark", scale=LANES_SCALE) as page:
        await page.goto(f"{url}/#/live")
        await page.get_by_role("button", name="6 s", exact=True).click()
        await page.wait_for_timeout(LANES_FILLED_S * 1000)
        await page.locator("section.card:has(canvas.lanes)").scroll_into_view_if_needed()
        box = await page.locator("section.card:has(canvas.lanes)").bounding_box()
        assert box is not None
        async with _screencast(page) as frames:
            await page.wait_for_timeout(MOVING_S * 1000)
    return frames, {"x": box["x"], "y": box["y"], "width": box["width"], "height": box["height"]}


@asynccontextmanager
async def _screencast(page: Page) -> AsyncIterator[list[Frame]]:
    frames: list[Frame] = []
    session = await page.context.new_cdp_session(page)
    answers: set[asyncio.Task[Any]] = set()

    def painted(event: dict[str, Any]) -> None:
        frames.append(Frame(base64.b64decode(event["data"]), event["metadata"]["timestamp"]))
        answers.add(asyncio.ensure_future(session.send("Page.screencastFrameAck", {"sessionId": event["sessionId"]})))

    session.on("Page.screencastFrame", painted)
    await session.send("Page.startScreencast", {"format": "png", "everyNthFrame": 1})
    yield frames
    await session.send("Page.stopScreencast")
    await asyncio.gather(*answers)


@asynccontextmanager
async def called(url: str, how: Callable[[aiohttp.ClientSession], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Make calls until the block ends, then cut what still runs."""
    async with aiohttp.ClientSession(url) as client, asyncio.TaskGroup() as group:
        calling = group.create_task(how(client))
        try:
            yield
        finally:
            calling.cancel()


async def one_by_one(client: aiohttp.ClientSession) -> None:
    """Have short answers raced by three, one after the other: each race can be read."""
    while True:
        await _call(client, PROMPTS[0], race={"mode": "race", "width": 3}, max_tokens=SHORT_TOKENS)
        await asyncio.sleep(APART_S)


async def by_chance(client: aiohttp.ClientSession) -> None:
    """Make streamed calls by chance, six a second on average."""
    draw = random.Random(16)
    async with asyncio.TaskGroup() as running:
        while True:
            await asyncio.sleep(draw.expovariate(CALLS_PER_S))
            running.create_task(_call(client, draw.choice(PROMPTS)))


async def _call(client: aiohttp.ClientSession, prompt: str, **more: Any) -> None:
    body = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": prompt}], **more}
    with suppress(aiohttp.ClientError):  # a simulated provider may end a stream with an error: that is to be seen too
        async with client.post("/v1/chat/completions", json=body) as response:
            async for _ in response.content.iter_any():
                pass


def _join(python: Path, frames: list[Frame], stage: dict[str, float], path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number, frame in enumerate(frames):
            (Path(folder) / f"{number:04}.png").write_bytes(frame.png)
        job: dict[str, Any] = {
            "at_s": [frame.at_s for frame in frames],
            "stage": stage,
            "folder": folder,
            "path": str(path.absolute()),
        }
        job |= {"window_px": LANES_PX}
        subprocess.run([python, str(_JOIN)], input=msgspec.json.encode(job), check=True)


def _hold(path: Path, most_bytes: int) -> None:
    size = path.stat().st_size
    _say(f"{path.name}: {size / 1000:,.0f} kB")
    if size > most_bytes:
        raise TooLargeError(f"{path} has {size:,} bytes; at most {most_bytes:,} were meant")


def _say(words: str) -> None:
    sys.stderr.write(f"{words}\n")
