"""Where the gateway spends its time, sampled from outside while it works: flame graphs, and the dearest functions.

Writes WAY.svg and WAY.txt for each way through the gateway to ``var/profile``. py-spy sees C functions too, and slows
the gateway little; ``path.py --functions`` counts exactly how often each Python function runs.
"""

import argparse
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from pathlib import Path

import msgspec

from tests.support.measured import load
from tests.support.measured.gateways import WAYS, measured_servers
from tests.support.measured.load import Order
from tests.support.measured.servers import ROOT, Server, prepare
from tools import installing
from tools.installing import UnavailableError

Stacks = Mapping[tuple[str, ...], int]  # samples, by the functions under way, the outermost first
PY_SPY = "py-spy==0.4.3"
PROFILES = ROOT / "var" / "profile"
CONCURRENCY = 16
REHEARSAL_CALLS = 300
RATE_HZ = 400
SECONDS = 10
LONGER = 2.0  # than it is looked at: py-spy takes a while to begin, and the sampled gateway is slower
ROWS = 40
_LOOP = "uv_run"  # what is called from outside of it is the same in every sample
_WAITING = frozenset({"PyThread_acquire_lock_timed", "epoll_wait", "epoll_pwait"})
WIDTH, ROW = 1600, 17  # pixels
_CHARACTER = 6.6  # the width of one
_LEAST = 0.4  # of a box; narrower ones are left out


class Share(msgspec.Struct, frozen=True):
    """A function, and the shares of all samples in which it ran itself, and in which it was under way."""

    own: float
    whole: float
    where: str


def record(py_spy: Path, way: str, server: Server, seconds: int) -> Stacks:
    """Sample the gateway on that way.

    Raises:
        UnavailableError: py-spy cannot look into it.

    """
    question = WAYS[way].question(server)
    rehearsal = load.run(Order(question=question, calls=REHEARSAL_CALLS, concurrency=CONCURRENCY))
    calls = int(REHEARSAL_CALLS / rehearsal.wall_s * seconds * LONGER)
    with tempfile.NamedTemporaryFile("r", suffix=".stacks") as output:
        command = [str(py_spy), "record", "--pid", str(server.pid), "--native", "--format", "raw"]
        command += ["--output", output.name, "--rate", str(RATE_HZ), "--duration", str(seconds)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as spy:
            load.run(Order(question=question, calls=calls, concurrency=CONCURRENCY))
            _, words = spy.communicate()
        if spy.returncode:
            raise UnavailableError(f"py-spy failed: {words.strip()}")
        return folded(Path(output.name).read_text().splitlines())


def folded(lines: Iterable[str]) -> Stacks:
    """Return what py-spy writes, ``outermost;…;innermost COUNT`` a line, from the event loop on.

    What waits is left out: threads without work, and the loop itself.
    """
    stacks: Counter[tuple[str, ...]] = Counter()
    for line in lines:
        stack, _, samples = line.rpartition(" ")
        frames = tuple(_without_line(frame) for frame in stack.split(";"))
        names = [frame.partition(" (")[0] for frame in frames]
        if _WAITING.isdisjoint(names):
            began = names.index(_LOOP) if _LOOP in names else 0
            stacks[frames[began:]] += int(samples)
    return stacks


def shares(stacks: Stacks) -> list[Share]:
    """Return the functions of stacks, the dearest by own time first."""
    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    for frames, samples in stacks.items():
        own[frames[-1]] += samples
        for frame in set(frames):
            whole[frame] += samples
    total = own.total() or 1
    found = (Share(own[frame] / total, count / total, frame) for frame, count in whole.items())
    return sorted(found, key=lambda share: (-share.own, -share.whole, share.where))


def summary(found: list[Share]) -> Iterator[str]:
    """Yield the lines of a text: the dearest functions by themselves, and with all they call."""
    yield f"{'own':>7} {'whole':>7}  function"
    for share in found[:ROWS]:
        yield f"{share.own:7.1%} {share.whole:7.1%}  {share.where}"
    yield ""
    yield "by whole time"
    for share in sorted(found, key=lambda share: -share.whole)[:ROWS]:
        yield f"{share.own:7.1%} {share.whole:7.1%}  {share.where}"


def _without_line(frame: str) -> str:
    """Return ``name (path)``: samples of one function are one, wherever in it they fell."""
    name, bracket, place = frame.rpartition(" (")
    if not bracket:
        return frame
    path = place.rstrip(")").rpartition(":")[0] or place.rstrip(")")
    return f"{name} ({path.rpartition('site-packages/')[2]})"


def run(ways: list[str], seconds: int) -> None:
    """Record all of ``ways``.

    Raises:
        UnavailableError: py-spy cannot be had, or cannot look into the gateway.

    """
    py_spy = installing.python_tool("py-spy", PY_SPY) / "py-spy"
    with measured_servers() as servers:
        for way in ways:
            print(f"recording {way}", file=sys.stderr, flush=True)
            stacks = record(py_spy, way, servers["gateway"], seconds)
            lines = list(summary(shares(stacks)))
            PROFILES.mkdir(parents=True, exist_ok=True)
            (PROFILES / f"{way}.svg").write_text(drawn(stacks, f"{way}: all that the gateway did"))
            (PROFILES / f"{way}.txt").write_text("\n".join(lines) + "\n")
            print(f"{way}, see {PROFILES.relative_to(ROOT)}/{way}.svg and .txt")
            print("\n".join(lines[:16]))


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.flames", description=__doc__)
    parser.add_argument("way", nargs="*", help=f"any of {', '.join(WAYS)}; all without")
    parser.add_argument("--seconds", type=int, default=SECONDS, help=f"of each recording [default: {SECONDS}]")
    arguments = parser.parse_args()
    for way in arguments.way:
        if way not in WAYS:
            parser.error(f"there is no way {way!r}: {', '.join(WAYS)}")
    prepare(parser)
    try:
        run(arguments.way or list(WAYS), arguments.seconds)
    except UnavailableError as error:
        sys.exit(f"broken: {error}")


class Box(msgspec.Struct):
    """A function where it was called from."""

    name: str
    samples: int = 0
    called: dict[str, "Box"] = {}

    def add(self, stack: tuple[str, ...], samples: int) -> None:
        """Count samples of a stack that begins inside this one."""
        self.samples += samples
        if stack:
            self.called.setdefault(stack[0], Box(stack[0])).add(stack[1:], samples)

    def depth(self) -> int:
        """How many rows it and what it called take."""
        return 1 + max((box.depth() for box in self.called.values()), default=0)


def drawn(stacks: Stacks, title: str) -> str:
    """Return the SVG."""
    root = Box(title)
    for stack, samples in stacks.items():
        root.add(stack, samples)
    height = root.depth() * ROW
    boxes = "\n".join(_boxes(root, 0.0, 0, WIDTH / max(1, root.samples), root.samples))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="monospace" '
        f'font-size="11">\n<rect width="{WIDTH}" height="{height}" fill="#fff"/>\n{boxes}\n</svg>\n'
    )


def _boxes(box: Box, left: float, row: int, scale: float, total: int) -> Iterator[str]:
    width = box.samples * scale
    if width < _LEAST:
        return
    top = row * ROW
    label = escape(box.name[: int(width / _CHARACTER)]) if width > 3 * _CHARACTER else ""
    yield (
        f"<g><title>{escape(box.name)}: {box.samples / max(1, total):.2%}</title>"
        f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{ROW - 1}" fill="{_colour(box.name)}"/>'
        f'<text x="{left + 2:.1f}" y="{top + 12}">{label}</text></g>'
    )
    for called in sorted(box.called.values(), key=lambda other: other.name):
        yield from _boxes(called, left, row + 1, scale, total)
        left += called.samples * scale


def _colour(name: str) -> str:
    """Return a warm colour for Python, a cold one for C, of a shade that is the function's own."""
    shade = zlib.crc32(name.encode()) % 40
    hue = 20 + shade if ".py" in name else 190 + shade
    return f"hsl({hue},70%,72%)"


if __name__ == "__main__":
    main()
