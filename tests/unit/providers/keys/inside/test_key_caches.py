"""A conversation stays with the key whose prompt cache has it; conversations are spread over keys."""

from collections import Counter
from collections.abc import Iterable

import pytest
from msgspec import structs

from providers import step_by_step
from providers.exchange import Request
from providers.keys import KeyRing
from providers.keys.ring import CROWD, KEPT, WARM_S, Conversations
from tests.unit.providers.keys.inside.test_key_ring import KEYS, OneKey, ThreeKeys, left, limited, refused, three_keys

__all__ = ["three_keys"]


def of(conversation: int, model: str = "m") -> Request:
    return Request(model, {}, conversation=conversation.to_bytes(16, "big"))


async def key_of(keys: ThreeKeys, request: Request) -> int:
    """Return which key is asked, and answers."""
    before = keys.asked
    await keys.ask(request)
    [number] = [
        number
        for number, (was, now) in enumerate(zip(before, keys.asked, strict=True))
        if now > was and answers(keys, number)
    ]
    return number


def answers(keys: ThreeKeys, number: int) -> bool:
    return keys.keys[number].error is None


async def keys_of(keys: ThreeKeys, conversations: Iterable[int]) -> list[int]:
    return [await key_of(keys, of(each)) for each in conversations]


async def test_the_turns_of_a_conversation_go_to_one_key(three_keys: ThreeKeys) -> None:
    first = await keys_of(three_keys, range(12))
    for _ in range(5):
        assert await keys_of(three_keys, range(12)) == first


async def test_conversations_are_spread_over_keys(three_keys: ThreeKeys) -> None:
    counted = Counter(await keys_of(three_keys, range(60)))
    assert set(counted) == {0, 1, 2}
    assert min(counted.values()) >= 15
    assert max(counted.values()) <= 23


async def test_few_conversations_are_spread_too(three_keys: ThreeKeys) -> None:
    assert set(await keys_of(three_keys, range(6))) == {0, 1, 2}


async def test_another_replica_uses_the_same_key() -> None:
    one, other = ThreeKeys(), ThreeKeys()
    assert await keys_of(one, range(12)) == await keys_of(other, range(12))


async def test_calls_without_a_conversation_take_turns_as_ever(three_keys: ThreeKeys) -> None:
    await keys_of(three_keys, [7])
    before = three_keys.asked
    for _ in range(6):
        await three_keys.ask()
    assert [now - was for now, was in zip(three_keys.asked, before, strict=True)] == [2, 2, 2]


async def test_a_rate_limited_key_is_left_and_the_conversation_stays_with_the_one_that_answered(
    three_keys: ThreeKeys,
) -> None:
    first = await key_of(three_keys, of(1))
    three_keys.keys[first].error = limited(30)
    second = await key_of(three_keys, of(1))
    three_keys.keys[first].error = None
    three_keys.now_s += 31
    assert [await key_of(three_keys, of(1)) for _ in range(4)] == [second] * 4
    assert second != first


async def test_a_refused_key_is_left_and_its_tries_are_not_a_conversations(three_keys: ThreeKeys) -> None:
    first = await key_of(three_keys, of(1))
    three_keys.keys[first].error = refused()
    second = await key_of(three_keys, of(1))
    asked = three_keys.asked[first]
    three_keys.now_s += 61
    assert await key_of(three_keys, of(1)) == second
    assert three_keys.asked[first] == asked
    await three_keys.ask(of(2))  # one that no key has yet
    assert three_keys.asked[first] == asked + 1


async def test_a_key_without_room_is_left_for_one_that_has_more(three_keys: ThreeKeys) -> None:
    first = await key_of(three_keys, of(1))
    three_keys.keys[first].headers = left(0.3)
    await three_keys.ask(of(1))
    assert await key_of(three_keys, of(1)) == first
    three_keys.keys[first].headers = left(0.02)
    await three_keys.ask(of(1))
    assert await key_of(three_keys, of(1)) != first


async def test_where_no_key_has_room_the_one_with_the_most_is_asked(three_keys: ThreeKeys) -> None:
    for key, share in zip(three_keys.keys, (0.0, 0.06, 0.0), strict=True):
        key.headers = left(share)
    for _ in KEYS:
        await three_keys.ask()
    assert [await key_of(three_keys, of(each)) for each in range(3)] == [1, 1, 1]


async def test_new_conversations_go_to_keys_with_about_as_much_room_as_any(three_keys: ThreeKeys) -> None:
    three_keys.keys[0].headers = left(0.4)
    for _ in KEYS:
        await three_keys.ask()
    assert set(await keys_of(three_keys, range(12))) == {1, 2}


async def test_more_calls_at_once_than_a_key_should_have_use_the_others_too(three_keys: ThreeKeys) -> None:
    first = await key_of(three_keys, of(1))
    under_way = [await three_keys.ring.stream(of(1)) for _ in range(10 * CROWD)]
    assert max(three_keys.in_flight) < len(under_way)
    assert min(three_keys.in_flight) > 0
    for exchange in under_way:
        exchange.abort()
    assert three_keys.in_flight == [0, 0, 0]
    assert first in range(3)


async def test_each_model_has_caches_of_its_own(three_keys: ThreeKeys) -> None:
    first = await key_of(three_keys, of(1))
    three_keys.keys[first].error = limited(30)
    other = await key_of(three_keys, of(1))
    three_keys.keys[first].error = None
    assert await key_of(three_keys, of(1, "other")) == first
    assert await key_of(three_keys, of(1)) == other


async def test_what_only_one_key_has_goes_there_whichever_answered_last(three_keys: ThreeKeys) -> None:
    first = await key_of(three_keys, of(1))
    other = three_keys.ring._keys[(first + 1) % 3].name
    for request in (structs.replace(of(1), first_key=other), structs.replace(of(1), key_name=other)):
        assert await key_of(three_keys, request) == (first + 1) % 3


@pytest.mark.parametrize("later_s", [WARM_S - 1, WARM_S + 1])
async def test_a_cold_cache_binds_to_no_key(later_s: float) -> None:
    known = Conversations()
    known.answered("m", b"c", 2, 0.0)
    assert known.key_of("m", b"c", later_s) == (2 if later_s < WARM_S else None)
    assert known.count[2] == (later_s < WARM_S)


def test_memory_is_bounded() -> None:
    known = Conversations()
    for number in range(KEPT + 5):
        known.answered("m", number.to_bytes(16, "big"), number % 3, 0.0)
    assert sum(known.count.values()) == KEPT
    assert known.key_of("m", (4).to_bytes(16, "big"), 0.0) is None
    assert known.key_of("m", (5).to_bytes(16, "big"), 0.0) == 2


async def test_a_ring_of_one_usable_key_uses_it() -> None:
    keys: list[OneKey] = []

    def opened(key: str) -> OneKey:
        keys.append(OneKey(key))
        return keys[-1]

    ring = KeyRing("acme", KEYS[:2], opened)
    keys[0].error = refused()
    for number in range(8):
        request = of(number)
        await step_by_step(lambda: ring.stream(request), request.sendings)  # noqa: B023 - asked before the next round
    assert keys[1].asked == 8
