"""Who is cut when there are too many strangers."""

from gateway.server.connections import LOOKS, Strangers


class Someone:
    def __init__(self, *, idle: bool = True) -> None:
        self.is_idle = idle


def test_the_longest_silent_one_is_cut_first_of_all_or_of_an_address() -> None:
    strangers: Strangers[Someone] = Strangers()
    first, second, third = Someone(), Someone(), Someone()
    strangers.add(first, b"a")
    strangers.add(second, b"b")
    strangers.add(third, b"b")
    assert strangers.longest_silent() is first
    assert strangers.longest_silent(b"b") is second
    strangers.mark_active(second)
    assert strangers.longest_silent(b"b") is third
    strangers.mark_active(first)
    assert strangers.longest_silent() is third


def test_one_that_is_heard_is_cut_after_those_that_are_idle() -> None:
    strangers: Strangers[Someone] = Strangers()
    busy, idle = Someone(idle=False), Someone()
    strangers.add(busy, b"a")
    strangers.add(idle, b"a")
    assert strangers.longest_silent() is idle
    assert strangers.longest_silent(b"a") is idle


def test_among_many_busy_ones_the_longest_silent_is_cut_without_looking_at_them_all() -> None:
    strangers: Strangers[Someone] = Strangers()
    busy = [Someone(idle=False) for _ in range(LOOKS + 1)]
    for one in busy:
        strangers.add(one, b"a")
    strangers.add(Someone(), b"a")
    assert strangers.longest_silent() is busy[0]


def test_an_address_is_forgotten_with_its_last_stranger() -> None:
    strangers: Strangers[Someone] = Strangers()
    one = Someone()
    strangers.add(one, b"a")
    strangers.add(one, b"b")
    assert (strangers.number_from(b"a"), strangers.number_from(b"b"), len(strangers)) == (0, 1, 1)
    strangers.discard(one)
    strangers.discard(one)
    strangers.mark_active(one)
    assert (strangers.number_from(b"b"), len(strangers), strangers.longest_silent(b"b")) == (0, 0, None)
    assert strangers._by_address == {}


def test_nobodys_strangers_count_in_all_only() -> None:
    strangers: Strangers[Someone] = Strangers()
    one = Someone()
    strangers.add(one, None)
    assert strangers.address(one) is None
    assert strangers.longest_silent() is one
    strangers.discard(one)
    assert len(strangers) == 0
