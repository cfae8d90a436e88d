"""The part of ``make test WHAT=hostile`` that needs seconds, without its clocks: what lasts beyond an attack."""

import re
from pathlib import Path

import pytest

from tests.hostile.attacks import ATTACKS, Attack
from tests.hostile.beside import beside
from tests.patience import PATIENCE_S

QUICK = {
    "trailers of 256 KB",
    "1.6 million blocks, Messages",
    "100,000 blocks",
    "as many values as may be, Messages",
    "<a<a…",
    "an event of 25 MB of lines",
    "errors in values that are quoted",
    "a content that xAI refuses",
    "a response of another, to be compacted",
}
_SECONDS = 1.0


@pytest.mark.parametrize("attack", [each for each in ATTACKS if each.name in QUICK], ids=lambda attack: attack.name)
async def test_an_attack_ends_no_gateway_fails_no_fair_call_and_leaves_no_memory(
    attack: Attack, tmp_path: Path
) -> None:
    figures = await beside(attack, _SECONDS, tmp_path, PATIENCE_S)
    assert not figures.lost()


def test_each_attack_is_in_the_table_of_what_is_tried() -> None:
    page = (Path(__file__).parents[2] / "docs/security.md").read_text(encoding="utf-8")
    assert {each.row for each in ATTACKS} == {int(row) for row in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}


def test_each_attack_has_a_name_of_its_own() -> None:
    assert len({each.name for each in ATTACKS}) == len(ATTACKS)
    assert {each.name for each in ATTACKS} >= QUICK
