"""The budget of bodies: who is refused, who is cut, and that every byte is given back."""

import pytest

from gateway.core.errors import Overloaded, TooManyBodies
from gateway.overload import Bodies, Body
from gateway.overload.bodies import FEWEST_UNFINISHED


class Reading:
    """The reading of one body, which may be cut."""

    def __init__(self, bodies: Bodies, client: str, address: str = "192.0.2.1") -> None:
        self.was_cut = False
        self.body: Body = bodies.begin(client, address, self.cut)

    def cut(self) -> None:
        self.was_cut = True


def test_a_body_counts_from_its_first_byte_until_it_is_released_and_no_longer() -> None:
    bodies = Bodies(1000)
    reading = Reading(bodies, "a")
    assert (bodies.size, bodies.unfinished) == (0, 1)
    reading.body.grow(300)
    reading.body.grow(100)
    reading.body.finish()
    assert (bodies.size, bodies.unfinished) == (400, 0)
    whole = bodies.whole("b", 50)
    assert bodies.size == 450
    for each in (reading.body, whole):
        each.release()
        each.release()
    assert (bodies.size, bodies.unfinished) == (0, 0)
    assert not bodies._shares
    assert not bodies._addresses


def test_one_client_has_half_of_the_budget_and_is_told_so() -> None:
    bodies = Bodies(1000)
    first, second = Reading(bodies, "a"), Reading(bodies, "a")
    first.body.grow(400)
    with pytest.raises(TooManyBodies) as refused:
        second.body.grow(101)
    assert refused.value.status_code == 429
    assert "retry-after" in refused.value.headers
    second.body.release()
    with pytest.raises(TooManyBodies):
        bodies.whole("a", 101)
    other = Reading(bodies, "b")
    other.body.grow(500)
    assert (first.was_cut, bodies.size) == (False, 900)


def test_a_whole_body_that_takes_the_room_of_its_own_clients_unfinished_one_is_given_back() -> None:
    bodies = Bodies(1000)
    others = [bodies.whole("b", 500), bodies.whole("c", 200)]
    reading = Reading(bodies, "a")
    reading.body.grow(250)
    whole = bodies.whole("a", 200)
    assert (reading.was_cut, bodies.size) == (True, 900)
    with pytest.raises(TooManyBodies):
        bodies.whole("a", 301)
    for each in (*others, whole):
        each.release()
    assert bodies.size == 0
    assert not bodies._shares


def test_without_room_the_oldest_unfinished_body_of_the_client_that_holds_most_is_cut() -> None:
    bodies = Bodies(1000)
    little = Reading(bodies, "little")
    little.body.grow(100)
    whole, empty, oldest, newer = (Reading(bodies, "most") for _ in range(4))
    whole.body.grow(100)
    whole.body.finish()
    oldest.body.grow(200)
    newer.body.grow(200)
    third = Reading(bodies, "third")
    third.body.grow(400)
    third.body.finish()
    assert bodies.size == 1000
    little.body.grow(1)
    assert [each.was_cut for each in (little, whole, empty, oldest, newer, third)] == [
        False,
        False,
        False,
        True,
        False,
        False,
    ]
    assert (bodies.size, bodies.cut) == (801, 1)
    with pytest.raises(Overloaded) as refused:
        oldest.body.grow(1)
    assert refused.value.status_code == 503
    oldest.body.release()
    assert bodies.size == 801


def test_who_holds_most_is_refused_and_cuts_nobody_else() -> None:
    bodies = Bodies(1000)
    held = [bodies.whole("a", 400), bodies.whole("b", 400)]
    mine, other = Reading(bodies, "c"), Reading(bodies, "d")
    mine.body.grow(120)
    other.body.grow(10)
    with pytest.raises(Overloaded):
        mine.body.grow(100)
    assert not other.was_cut
    mine.body.release()
    with pytest.raises(Overloaded):
        bodies.whole("e", 300)
    for each in (*held, other.body):
        each.release()
    assert bodies.size == 0


@pytest.mark.parametrize("by", ["client", "address"])
def test_so_many_may_be_unfinished_by_client_and_by_address(by: str) -> None:
    bodies = Bodies(1000, most_unfinished=lambda: FEWEST_UNFINISHED + 1)

    def another(number: int) -> Reading:
        return Reading(bodies, "a", str(number)) if by == "client" else Reading(bodies, str(number), "192.0.2.1")

    most = (FEWEST_UNFINISHED + 1) * (1 if by == "client" else 2)  # no client uses up its address's
    readings = [another(number) for number in range(most)]
    with pytest.raises(TooManyBodies) as refused:
        another(-1)
    assert by in refused.value.message
    readings[0].body.finish()
    another(-1)
    Reading(bodies, "other", "192.0.2.2")
