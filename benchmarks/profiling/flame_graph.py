"""A flame graph: folded stacks as an SVG in which a box is as wide as its function was busy, under whom it called."""

import zlib
from collections.abc import Iterator, Mapping
from html import escape

import msgspec

Stacks = Mapping[tuple[str, ...], int]  # samples, by the functions under way, the outermost first

WIDTH, ROW = 1600, 17  # pixels
_CHARACTER = 6.6  # the width of one
_LEAST = 0.4  # of a box; narrower ones are left out


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
