"""The colours of deployments that race each other: told apart by everybody, in both themes."""

from collections.abc import Callable, Sequence
from itertools import combinations
from math import dist

import pytest

from tests.browser.visit import Visit
from tests.support.browser.installation import MODEL, Installation

# What a model's deployments are drawn in, and what they are drawn upon, as red, green and blue.
DRAWN = """async model => {
  const { colourOf, resolved } = await import("./page/lib/colours.js");
  const { models } = await (await fetch("api/leaderboard")).json();
  const names = models.find(each => each.model === model).deployments.map(each => each.deployment);
  return ["var(--raised)", ...names.map(colourOf)].map(each => resolved(each).match(/[0-9]+/g).map(Number));
}"""
CLEARLY = 0.12  # a distance in OKLab; 0.02 is just seen beside each other
# What remains of linear red, green and blue without a kind of cones: Machado, Oliveira and Fernandes, "A
# Physiologically-based Model for Simulation of Color Vision Deficiency" (2009), severity 1.
SIGHTS = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "no green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "no blue": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
# Björn Ottosson, "A perceptual color space for image processing" (2020).
_CONES = ((0.4122214708, 0.5363325363, 0.0514459929), (0.2119034982, 0.6806995451, 0.1073969566),
          (0.0883024619, 0.2817188376, 0.6299787005))  # fmt: skip
_LAB = ((0.2104542553, 0.7936177850, -0.0040720468), (1.9779984951, -2.4285922050, 0.4505937099),
        (0.0259040371, 0.7827717662, -0.8086757660))  # fmt: skip
_LUMINANCE = ((0.2126, 0.7152, 0.0722),)


@pytest.mark.parametrize("dark", [False, True])
def test_five_that_race_each_other_differ_clearly_for_everybody(
    demo: Installation, visit: Callable[..., Visit], dark: bool
) -> None:
    page = visit(demo, dark=dark).open("leaderboard")
    ground, *colours = [[linear(each) for each in colour] for colour in page.evaluate(DRAWN, MODEL)]
    assert len(colours) == 5
    for sight, remains in SIGHTS.items():
        seen = [oklab([max(0.0, each) for each in product(remains, colour)]) for colour in colours]
        assert min(dist(one, other) for one, other in combinations(seen, 2)) > CLEARLY, sight
    [upon] = product(_LUMINANCE, ground)
    for colour in colours:
        [bright] = product(_LUMINANCE, colour)
        assert (max(bright, upon) + 0.05) / (min(bright, upon) + 0.05) >= 3  # WCAG 2.2, 1.4.11


def linear(value: float) -> float:
    """Return how much light a value of 0 to 255 is."""
    share = value / 255
    return share / 12.92 if share <= 0.04045 else float(((share + 0.055) / 1.055) ** 2.4)


def oklab(colour: Sequence[float]) -> list[float]:
    """Return a linear colour in a space in which distances are as people see them."""
    return product(_LAB, [each ** (1 / 3) for each in product(_CONES, colour)])


def product(matrix: Sequence[Sequence[float]], vector: Sequence[float]) -> list[float]:
    """Return a matrix times a vector."""
    return [sum(one * other for one, other in zip(row, vector, strict=True)) for row in matrix]
