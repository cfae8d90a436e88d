"""The order in which waiting calls are served and shed."""

import msgspec

from gateway.overload.call_queue import Queue


class Call(msgspec.Struct, frozen=True):
    """A call by its name."""

    name: str
    priority: int
    owner: str | None = None


def filled(*calls: Call) -> Queue[Call]:
    queue: Queue[Call] = Queue()
    for each in calls:
        queue.add(each)
    return queue


def test_higher_priority_first_and_in_it_first_come_first_served() -> None:
    queue = filled(Call("a", 0), Call("b", 5), Call("c", 0), Call("d", 5), Call("e", -1))
    assert len(queue) == 5
    assert "".join(one.name for _ in range(5) if (one := queue.pop()) is not None) == "bdace"
    assert not queue


def test_a_call_that_leaves_is_not_served() -> None:
    first, second = Call("a", 0), Call("b", 0)
    queue = filled(first, second)
    queue.discard(first)
    queue.discard(first)
    assert len(queue) == 1
    assert queue.pop() is second
    queue.discard(second)
    assert len(queue) == 0


def test_the_last_is_the_newest_of_the_lowest_priority() -> None:
    queue = filled(Call("a", 1), Call("b", 0), Call("c", 0), Call("d", 2))
    shed = []
    while queue:
        shed.append(queue.last().name)
        queue.discard(queue.last())
    assert "".join(shed) == "cbad"
