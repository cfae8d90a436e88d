"""A small surface to draw charts on, as SVG text."""

from collections.abc import Sequence
from html import escape

FONT = "font-family='Inter,Helvetica,Arial,sans-serif'"


class Drawing:
    """Shapes in the order in which they are drawn; x to the right, y down, in pixels."""

    def __init__(self, width: float, height: float) -> None:
        box = f"width='{width:.0f}' height='{height:.0f}' viewBox='0 0 {width:.0f} {height:.0f}'"
        head = f"<svg xmlns='http://www.w3.org/2000/svg' {box}>"
        self._shapes = [head, "<rect width='100%' height='100%' fill='white'/>"]

    def path(self, points: Sequence[tuple[float, float]], colour: str, width: float) -> None:
        """Draw a line through points."""
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        stroke = f"stroke='{colour}' stroke-width='{width}' stroke-linejoin='round'"
        self._shapes.append(f"<polyline points='{joined}' fill='none' {stroke}/>")

    def dot(self, x: float, y: float, colour: str) -> None:
        stroke = f"fill='{colour}' stroke='{colour}' stroke-width='1.5'"
        self._shapes.append(f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3.5' {stroke}/>")

    def text(
        self, x: float, y: float, words: str, *, size: float = 11, anchor: str = "start", colour: str = "#444",
        bold: bool = False,
    ) -> None:  # fmt: skip
        """Write; ``anchor`` is start, middle or end."""
        weight = " font-weight='600'" if bold else ""
        look = f"{FONT} font-size='{size}' text-anchor='{anchor}' fill='{colour}'{weight}"
        self._shapes.append(f"<text x='{x:.1f}' y='{y:.1f}' {look}>{escape(words)}</text>")

    def render(self) -> str:
        return "\n".join([*self._shapes, "</svg>\n"])
