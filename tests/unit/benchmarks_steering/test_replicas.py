"""The simulation of many replicas: rounds in simulated time, and when replicas agree."""

from benchmarks.steering.replicas import PART_S, Rounds, agreed_s
from benchmarks.steering.timeline import Timeline


async def test_rounds_go_on_in_the_order_of_simulated_time() -> None:
    timeline, seen = Timeline(), []
    rounds = Rounds(timeline)

    async def work(name: str, seconds: float) -> None:
        for _ in range(2):
            await rounds.rest(seconds)
            seen.append((name, timeline.now_s))

    timeline.at(1.0, lambda: rounds.start(work("slow", 5.0)))
    timeline.at(2.0, lambda: rounds.start(work("quick", 0.5)))
    await rounds.run()
    assert seen == [("quick", 2.5), ("quick", 3.0), ("slow", 6.0), ("slow", 11.0)]


def test_replicas_agree_once_so_many_prefer_the_best_one_and_go_on_to_do_so() -> None:
    best, other = "cedar", "alder"  # of the second part
    seen = [[other, other], [best, best], [other, best], [best, best], [best, best], [best, best]]
    looks = [(PART_S + at_s, first) for at_s, first in enumerate(seen, start=1)]
    assert agreed_s(looks, 1, 1.0) == 4.0
    assert agreed_s(looks, 1, 0.5) == 2.0
    assert agreed_s(looks[:5], 1, 1.0) is None
