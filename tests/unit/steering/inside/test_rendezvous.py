"""A prompt that no cache is known to hold goes where its first bytes say, in every replica."""

import subprocess
import sys
from collections import Counter

import pytest

from gateway.core.calls import Mode
from gateway.steering import Plan, prefix_of
from gateway.steering.constants import CACHE_MISSES, CACHE_WARM_S
from gateway.steering.plans import Why
from providers import Price
from tests.unit.steering.inside.test_affinity import CACHING, CHAT, CHATS, FLAT, KB, PRICES, equals, prefix, primary
from tests.unit.steering.virtual_replica import MODEL, VirtualReplica

PRINT_SHARED = """
from gateway.steering import prefix_of
print(prefix_of([b"x" * 9000], "key").shared.hex())
"""


def home(replica: VirtualReplica, number: int = 0) -> str:
    plan = replica.plan(prefix=CHATS[number], prices=PRICES)
    assert plan.launches[0].why is Why.RENDEZVOUS
    return plan.launches[0].deployment


def warmed(seed: int, **ttft_s: float) -> VirtualReplica:
    made = VirtualReplica(tuple(ttft_s), seed=seed)
    made.warm_up(30, **ttft_s)
    return made


def test_a_conversation_goes_to_the_same_deployment_from_any_replica() -> None:
    replicas = [warmed(seed, a=0.3, b=0.3, c=0.3) for seed in range(3)]
    for number in range(100):
        assert len({home(each, number) for each in replicas}) == 1
    assert len({home(replicas[0], number) for number in range(100)}) == 3


def test_the_digest_is_the_same_in_every_process() -> None:
    here = prefix_of([b"x" * 9000], "key")
    assert here is not None
    there = subprocess.run([sys.executable, "-c", PRINT_SHARED], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == (here.shared or b"").hex() != ""


def test_a_later_turn_goes_where_the_first_went() -> None:
    one, other = warmed(1, a=0.3, b=0.3, c=0.3), warmed(2, a=0.3, b=0.3, c=0.3)
    for key in map(str, range(50)):
        first = one.plan(prefix=prefix(5 * KB, key=key), prices=PRICES)
        later = other.plan(prefix=prefix(5 * KB, 60 * KB, key=key), prices=PRICES)
        assert primary(first) == primary(later)


def test_replicas_that_see_slightly_different_figures_agree_on_most() -> None:
    one, other = warmed(1, a=0.31, b=0.32, c=0.34), warmed(2, a=0.32, b=0.31, c=0.34)
    agreed = sum(home(one, number) == home(other, number) for number in range(300))
    assert agreed > 240


def test_they_are_spread_by_the_weights_of_the_draw() -> None:
    replica = equals("ab")
    plans = [replica.plan(prefix=each, prices=PRICES, weights={"a": 3.0}) for each in CHATS]
    sent = Counter(primary(plan) for plan in plans)
    assert sent["a", Why.RENDEZVOUS] / len(CHATS) == pytest.approx(0.75, abs=0.05)


def test_only_the_conversations_of_who_drops_out_move() -> None:
    three, two = warmed(1, a=0.3, b=0.3, c=0.3), warmed(1, a=0.3, b=0.3, c=1.5)
    for number in range(100):
        before, after = home(three, number), home(two, number)
        assert before in {"c", after}


def test_what_is_known_to_be_held_goes_first() -> None:
    replica = equals()
    elsewhere = next(name for name in "abc" if name != home(replica))
    replica.steering.served(MODEL, CHATS[0], elsewhere, None)
    assert primary(replica.plan(prefix=CHATS[0], prices=PRICES)) == (elsewhere, Why.CACHE_WARM)


def test_it_moves_when_its_deployment_becomes_slow() -> None:
    replica = warmed(1, a=0.3, b=0.3, c=0.3, d=1.5)
    replica.steering.served(MODEL, CHATS[0], "d", None)
    moved = {primary(replica.plan(prefix=CHATS[0], prices=PRICES)) for _ in range(20)}
    assert moved == {(home(warmed(2, a=0.3, b=0.3, c=0.3, d=1.5)), Why.RENDEZVOUS)}


def test_only_those_whose_cache_saves_something_are_worth_it() -> None:
    replica = equals()
    prices = {"a": FLAT, "b": CACHING, "c": FLAT}
    assert {primary(replica.plan(prefix=each, prices=prices)) for each in CHATS[:50]} == {("b", Why.RENDEZVOUS)}
    drawn = {primary(replica.plan(prefix=each, prices=dict.fromkeys("abc", FLAT))) for each in CHATS[:50]}
    assert drawn == {(name, Why.DRAWN) for name in "abc"}
    replica.steering.served(MODEL, CHAT, "c", 2000)  # no price says so, but it reads from a cache
    seen = {primary(replica.plan(prefix=each, prices=None)) for each in CHATS[:50]}
    assert seen == {("c", Why.RENDEZVOUS)}


def plans(replica: VirtualReplica, *, cache_affinity: bool = True) -> list[Plan]:
    return [replica.plan(prefix=CHATS[0], prices=PRICES, cache_affinity=cache_affinity) for _ in range(50)]


def test_it_can_be_switched_off() -> None:
    assert {plan.launches[0].why for plan in plans(equals(), cache_affinity=False)} == {Why.DRAWN}


def test_short_prompts_are_drawn() -> None:
    replica = equals()
    assert {replica.plan(prices=PRICES).launches[0].why for _ in range(50)} == {Why.DRAWN}


def test_where_many_prompts_begin_alike_nobody_is_crowded() -> None:
    replica = equals()
    first = home(replica)
    for _ in range(20):
        replica.launch(first)
    crowded = Counter(primary(plan) for plan in plans(replica))
    assert {why for _, why in crowded} == {Why.DRAWN}
    for name in set("abc") - {first}:
        for _ in range(15):
            replica.launch(name)
    assert home(replica) == first


def test_a_rate_limit_nearly_used_up_is_not_pressed() -> None:
    replica = equals()
    first = home(replica)
    replica.steering._learning.healths[first].limit_left(0.05, replica.now_s)
    assert home(replica) != first


def test_a_plan_says_why() -> None:
    replica = equals()
    told = replica.plan(prefix=CHATS[0], prices=PRICES, mode=Mode.SINGLE, explain=True).explanation
    assert told is not None
    assert told.launches[0].why == (
        "rendezvous: no cache is known to hold this prompt; of 3 that are about equally good, every replica sends"
        " prompts that begin with the same 4 KB to this one"
    )
    assert {each.deployment: each.draw for each in told.deployments} == {
        name: float(name == home(replica)) for name in "abc"
    }


def test_canaries_keep_their_share() -> None:
    replica = equals()
    canary = next(name for name in "abc" if name != home(replica))
    sent = Counter(
        primary(replica.plan(prefix=CHATS[0], prices=PRICES, canaries={canary: 0.25}, explain=True)) for _ in range(400)
    )
    assert 60 < sent[canary, Why.CANARY] < 140
    told = replica.plan(prefix=CHATS[0], prices=PRICES, canaries={canary: 0.25}, explain=True).explanation
    assert told is not None
    assert sum(each.draw for each in told.deployments) == pytest.approx(1.0)


def test_prices_say_whose_cache_saves_something() -> None:
    replica = equals("ab")
    dearer = {"a": CACHING, "b": Price(1e-6, 4e-6, cached_input_usd=1e-6)}
    assert {primary(replica.plan(prefix=each, prices=dearer)) for each in CHATS[:30]} == {("a", Why.RENDEZVOUS)}


def test_where_a_beginning_was_missed_lately_it_is_not_sent_again() -> None:
    replica = equals()
    left = set("abc")
    while left:  # many prompts begin so, and no cache keeps what they have in common
        missed = home(replica)
        left.remove(missed)
        for _ in range(1 + CACHE_MISSES):
            replica.steering.served(MODEL, CHATS[0], missed, 0)
    assert {primary(plan) for plan in plans(replica)} == {(name, Why.DRAWN) for name in "abc"}
    assert home(replica, 1)
    replica.now_s += CACHE_WARM_S
    assert home(replica) == home(equals())
