"""How soon a deployment has its calls back after a spell: a hang or a slowness that is over."""

from collections.abc import Sequence

from benchmarks.steering.race import Result
from benchmarks.steering.worlds import World

BEFORE_S = 120.0  # its usual share of the calls is taken from so long before the spell
CALLS = 12  # in a row, of which it must be asked first for half of its usual share


def recoveries_s(world: World, results: Sequence[Result]) -> list[float]:
    """Return, for each spell that ended within the run, after how many seconds half of the usual share was back.

    A share that is never back counts as all the time until the next spell, or until the end. ``results`` are of one
    run, in the order of their arrival.
    """
    spell = world.spell
    if spell is None or not results:
        return []
    found = []
    begin_s, last_s = spell.begins_s, results[-1].at_s
    while begin_s + spell.lasts_s < last_s:
        over_s, next_s = begin_s + spell.lasts_s, min(last_s, begin_s + spell.every_s)
        usual = _share([each for each in results if begin_s - BEFORE_S <= each.at_s < begin_s], spell.provider)
        after = [each for each in results if over_s <= each.at_s < next_s]
        back_s = next_s
        for end in range(CALLS, len(after) + 1):
            if _share(after[end - CALLS : end], spell.provider) >= usual / 2:
                back_s = after[end - 1].at_s
                break
        found.append(back_s - over_s)
        begin_s += spell.every_s
    return found


def _share(results: Sequence[Result], provider: str) -> float:
    return sum(each.primary == provider for each in results) / len(results) if results else 0.0
