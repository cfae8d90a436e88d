"""The moving picture of the site's first page tells what the races' events told."""

from xml.etree import ElementTree as ET

import pytest

from tools.pictures.race import Attempt, Race, draw

_SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(name="picture")
def _picture() -> ET.Element:
    won, cut = Attempt("swift", 1, 400, 900, "won"), Attempt("ste<ady", 2, None, 402, "lost")
    return ET.fromstring(draw([Race({"a": won, "b": cut}, 401.6)]))


def test_a_race_has_a_lane_for_each_attempt_and_says_how_it_ended(picture: ET.Element) -> None:
    words = [text.text for text in picture.iter(f"{_SVG}text")]
    assert words == ["first token: 402 ms", "swift", "answered", "ste<ady", "✕ cancelled"]


def test_only_the_winner_has_an_answer_and_it_begins_where_the_other_is_cut(picture: ET.Element) -> None:
    first, answer, other = ({**rect.attrib} for rect in picture.iter(f"{_SVG}rect"))
    assert [rect["class"].split()[0] for rect in (first, answer, other)] == ["wait", "won", "wait"]
    ends = [float(rect["x"]) + float(rect["width"]) for rect in (first, other)]
    assert ends == pytest.approx([float(answer["x"])] * 2, abs=2)


def test_nothing_moves_for_who_asks_for_less_motion(picture: ET.Element) -> None:
    style = picture.findtext(f"{_SVG}style") or ""
    still, moving = style.split("@media (prefers-reduced-motion: no-preference)")
    assert "animation" not in still
    assert "opacity" not in still
    assert moving.count("@keyframes") == len([*picture.iter(f"{_SVG}rect"), *picture.iter(f"{_SVG}text")]) - 2  # names
