"""How many WebSockets a client may have, how fast it opens them, and what refusals on one cost."""

import asyncio

import pytest

from gateway.overload import LONGEST_S, MessagePace, OpenSockets, TooManySockets
from gateway.overload.sockets import (
    BURST,
    FIRST_S,
    FREE,
    HANDSHAKES_PER_S,
    HELD_EACH,
    MOST_OPEN,
    UNASKED,
    WARM_UPS,
    ClientSockets,
)


def test_a_client_may_have_so_many_and_no_more() -> None:
    sockets = OpenSockets()
    for number in range(MOST_OPEN):
        sockets.enter("app", number / HANDSHAKES_PER_S)
    with pytest.raises(TooManySockets, match="open, as many as it may"):
        sockets.enter("app", 3600.0)
    sockets.enter("other", 0.0)
    sockets.leave("app")
    sockets.enter("app", 3600.0)


def test_handshakes_of_a_client_have_a_rate() -> None:
    sockets, opened = OpenSockets(), 0
    for number in range(20_000):  # two thousand a second
        try:
            sockets.enter("app", number / 2000)
        except TooManySockets:
            continue
        opened += 1
        sockets.leave("app")
    assert BURST <= opened <= BURST + 10 * HANDSHAKES_PER_S + 1


def test_clients_without_a_connection_are_forgotten() -> None:
    sockets = OpenSockets()
    for number in range(1000):
        sockets.enter(number, float(number))
        sockets.leave(number)
    assert len(sockets._clients) < 3


async def test_only_some_refused_handshakes_wait_and_none_once_the_gateway_ends() -> None:
    sockets, ends = OpenSockets(), asyncio.Event()
    sockets.enter("app", 0.0)
    waiting = [asyncio.ensure_future(sockets.hold("app", ends)) for _ in range(HELD_EACH)]
    await asyncio.sleep(0)
    await sockets.hold("app", ends)  # one more is told at once
    assert not any(each.done() for each in waiting)
    ends.set()
    await asyncio.gather(*waiting)


def test_the_first_refusals_delay_nothing_and_each_further_one_twice_as_long() -> None:
    pace, now_s, delays = MessagePace(ClientSockets()), 100.0, []
    for _ in range(int(FREE) + 7):
        pace.refused(now_s)
        delays.append(max(0.0, pace.until_s - now_s))
    assert delays[: int(FREE)] == [0.0] * int(FREE)
    assert delays[int(FREE)] == FIRST_S
    assert delays == sorted(delays)
    assert delays[-1] == LONGEST_S


def test_a_refusal_now_and_then_never_delays() -> None:
    pace = MessagePace(ClientSockets())
    for minute in range(60):
        for each in range(int(FREE)):
            pace.refused(60.0 * minute + each)
    assert pace.until_s == 0.0


def test_a_refusal_that_says_when_to_come_again_delays_no_longer() -> None:
    pace = MessagePace(ClientSockets())
    for _ in range(20):
        pace.refused(10.0, 1.0)
    assert pace.until_s == 11.0


async def test_one_message_of_a_client_is_read_in_a_turn_of_the_loop_on_however_many_connections() -> None:
    own, loop, turns, read = ClientSockets(), asyncio.get_running_loop(), 0, []

    def count() -> None:
        nonlocal turns
        turns += 1
        loop.call_soon(count)

    async def one(name: int) -> None:
        await own.turn()
        read.append((turns, name))

    loop.call_soon(count)
    await asyncio.gather(*map(one, range(30)))
    assert [name for _, name in read] == [*range(30)]
    assert len({turn for turn, _ in read}) == 30


def test_warm_ups_delay_nothing_unless_they_come_without_end() -> None:
    usual, endless = MessagePace(ClientSockets()), MessagePace(ClientSockets())
    for each in range(1000):
        usual.warmed(2.0 * each)
        endless.warmed(each / 1000)
    assert usual.until_s == 0.0
    assert endless.until_s > WARM_UPS


def test_connections_of_one_client_share_what_delays_nothing() -> None:
    own = ClientSockets()
    paces = [MessagePace(own) for _ in range(int(UNASKED) + 1)]
    for pace in paces:
        pace.refused(100.0)
    assert [pace.until_s > 100.0 for pace in paces] == [False] * int(UNASKED) + [True]
