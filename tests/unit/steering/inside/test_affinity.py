"""A conversation goes back to whose prompt cache holds it, as far as nobody has to wait for that."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec
import pytest

from gateway.core.attempts import Role
from gateway.core.calls import Mode, Objective
from gateway.steering import PREFIX_BYTES, Plan, Prefix, conversation_of, prefix_of
from gateway.steering.affinity import Affinity
from gateway.steering.constants import CACHE_WARM_S, PREFIXES_KEPT
from gateway.steering.plans import Why
from providers import ErrorKind, Price
from tests.unit.steering.virtual_replica import MODEL, VirtualReplica

CACHING = Price(1e-6, 4e-6, cached_input_usd=1e-7)
FLAT = Price(1e-6, 4e-6)
PRICES = dict.fromkeys("abc", CACHING)
KB = 1024


def turns(*sizes: int) -> list[bytes]:
    """The messages of a conversation with so many bytes in each turn, as its client sends them."""
    return [
        json.dumps([{"role": "user", "content": f"{number:x}" * size} for number, size in enumerate(sizes)]).encode()
    ]


def prefix(*sizes: int, key: str | None = None, session: str | None = None) -> Prefix:
    found = prefix_of(turns(*sizes), key, session)
    assert found is not None
    return found


CHAT = prefix(10 * KB)
CHATS = [prefix(10 * KB, key=str(number)) for number in range(600)]  # conversations that have nothing in common


def primary(plan: Plan) -> tuple[str, Why | None]:
    return plan.launches[0].deployment, plan.launches[0].why


def equals(names: Sequence[str] = "abc") -> VirtualReplica:
    """Deployments that are as good as each other."""
    replica = VirtualReplica(tuple(names))
    replica.warm_up(30, **dict.fromkeys(names, 0.3))
    return replica


# The beginnings of a prompt


def test_a_prompt_too_short_for_any_cache_has_no_beginnings() -> None:
    assert prefix_of([b"x" * PREFIX_BYTES[0]], None) is None
    assert prefix_of([], None) is None
    assert prefix_of([b"x" * (PREFIX_BYTES[0] + 1)], None) is not None


def test_a_turn_begins_as_the_turn_before() -> None:
    assert len(CHAT.digests) == 2
    assert prefix(10 * KB, 30 * KB).digests[:2] == CHAT.digests
    assert len(prefix(10 * KB, 30 * KB).digests) == 4


def test_a_turn_that_ends_where_a_beginning_does_is_known_again() -> None:
    [empty] = turns(0)
    ends_there = prefix(8 * KB - len(empty))
    grown = prefix(8 * KB - len(empty), 50)
    assert set(ends_there.digests) <= set(grown.digests)


def test_one_changed_byte_is_another_beginning_from_there_on() -> None:
    plain = prefix_of([b"a" * 20_000], None)
    changed = prefix_of([b"a" * 5_000 + b"b" + b"a" * 15_000], None)
    assert plain is not None
    assert changed is not None
    assert [one == other for one, other in zip(plain.digests, changed.digests, strict=True)] == [True, False, False]


def test_each_cache_key_has_beginnings_of_its_own() -> None:
    assert not set(prefix(10 * KB, key="mine").digests) & set(CHAT.digests)
    assert prefix(10 * KB, key="mine") == prefix(10 * KB, key="mine")


def test_tools_system_and_messages_are_one_prompt_however_they_are_handed_in() -> None:
    whole = turns(100 * KB)[0]
    parts = (msgspec.Raw(whole[:3000]), memoryview(whole)[3000:70_000], whole[70_000:])
    assert prefix_of(iter(parts), None) == prefix_of([whole], None)


def test_what_is_beyond_the_longest_beginning_does_not_count() -> None:
    assert prefix(100 * KB) == prefix(100 * KB, 100 * KB)


def test_ids_of_items_are_no_part_of_what_a_vendor_reads() -> None:
    """Codex names each item of its input anew in each session, and sends the same names in all turns of one."""

    def begun(session: str, *texts: str) -> bytes:
        said = [
            {"type": "message", "id": f"msg_{session}-{text[:2]}", "role": "user", "content": text} for text in texts
        ]
        return json.dumps(said).encode()

    one, other = (prefix_of([b"[]", begun(session, "Hi" * 5000, "So" * 9000)], None) for session in ("a1b2", "c3"))
    assert one is not None
    assert other is not None
    assert one.digests == other.digests
    assert one.shared == other.shared
    grown = prefix_of([b"[]", begun("a1b2", "Hi" * 5000, "So" * 9000, "On" * 9000)], None)
    assert grown is not None
    assert grown.digests[: len(one.digests)] == one.digests
    assert prefix_of([b"[]", begun("a1b2", "Ho" * 5000, "So" * 9000)], None) != one


def test_conversations_that_only_refer_to_their_items_are_told_apart_by_the_ids() -> None:
    def begun(session: str) -> Prefix:
        said = [{"type": "item_reference", "id": f"msg_{session}_{number}"} for number in range(500)]
        made = prefix_of([b"[]", json.dumps(said).encode()], None)
        assert made is not None
        return made

    assert not set(begun("a1b2").digests) & set(begun("c3d4").digests)


# What a provider's key ring knows a conversation by


SYSTEM: dict[str, object] = {"role": "system", "content": "You are helpful. " * 600}


def known_by(
    *messages: Mapping[str, object], tools: bytes = b"[]", key: str | None = None, session: str | None = None
) -> bytes:
    return conversation_of([tools], json.dumps(messages).encode(), key, session)


def said(role: str, text: str) -> dict[str, object]:
    return {"role": role, "content": text}


def test_every_turn_of_a_conversation_is_known_by_the_same() -> None:
    first = [SYSTEM, said("user", "Hi")]
    second = [*first, said("assistant", "Hello"), said("user", "Tell me more. " * 900)]
    assert known_by(*first) == known_by(*second) == known_by(*second, said("assistant", "More."))


def test_a_session_stays_known_when_its_agent_sums_up_what_was_said() -> None:
    before = known_by(SYSTEM, said("user", "Hi"), said("assistant", "Hello"), session="one")
    assert before == known_by(SYSTEM, said("user", "In short: hello was said."), session="one")
    assert before != known_by(SYSTEM, said("user", "Hi"), session="two")
    assert before != known_by(SYSTEM, said("user", "Hi"))


def test_helpers_of_a_session_with_instructions_or_tools_of_their_own_are_told_apart() -> None:
    helper = said("system", "Search files. " * 9000)  # longer than what is looked at
    known = {
        known_by(SYSTEM, said("user", "Hi"), session="one"),
        known_by(helper, said("user", "Hi"), session="one"),
        known_by(SYSTEM, said("user", "Hi"), session="one", tools=b"[1]"),
        known_by(said("user", "Hi"), session="one"),
    }
    assert len(known) == 4
    assert known_by(helper, said("user", "A"), session="one") == known_by(helper, said("user", "B"), session="one")


def test_conversations_that_differ_after_their_system_prompt_are_told_apart() -> None:
    assert len({known_by(SYSTEM, said("user", f"Question {number}")) for number in range(20)}) == 20


@pytest.mark.parametrize(
    "other",
    [
        known_by(SYSTEM, said("user", "Hi"), tools=b"[1]"),
        known_by(said("system", "Another"), said("user", "Hi")),
        known_by(SYSTEM, said("user", "Hi"), key="mine"),
        known_by(said("user", "Hi")),
    ],
)
def test_tools_instructions_and_the_clients_key_tell_conversations_apart(other: bytes) -> None:
    assert other != known_by(SYSTEM, said("user", "Hi"))


def test_marks_of_the_cache_that_move_on_change_nothing() -> None:
    text = {"type": "text", "text": "Hi"}
    marked = {"role": "user", "content": [{**text, "cache_control": {"type": "ephemeral"}}]}
    assert known_by(marked) == known_by({"role": "user", "content": [text]}) == known_by(said("user", "Hi"))


def test_an_input_of_text_is_known_again_in_a_list() -> None:
    assert conversation_of([], b'"Hi"', None) == conversation_of([], json.dumps([said("user", "Hi")]).encode(), None)


def test_turns_of_google_are_told_apart_by_their_first() -> None:
    def turns(*texts: str) -> bytes:
        return json.dumps([{"role": "user", "parts": [{"text": text}]} for text in texts]).encode()

    assert conversation_of([], turns("Hi"), None) == conversation_of([], turns("Hi", "more"), None)
    assert conversation_of([], turns("Hi"), None) != conversation_of([], turns("Ho"), None)


@pytest.mark.parametrize("first", ["x" * 200_000, "é" * 60_000, {"image": "y" * 100_000}, "\ud800"])
def test_a_first_turn_of_any_length_is_known_again(first: object) -> None:
    def turns(*more: dict[str, object]) -> bytes:
        return json.dumps([{"role": "user", "content": first}, *more], ensure_ascii=first != "é" * 60_000).encode()

    assert conversation_of([], turns(), None) == conversation_of([], turns(said("user", "more")), None)


@pytest.mark.parametrize("turns", [b"", b"[]", b" [ ] ", b"null", b"[" * 60_000, b"[1, 2]", b'["Hi", "Ho"]', b'"H'])
def test_whatever_stands_for_turns_is_known_by_something(turns: bytes) -> None:
    assert len(conversation_of([], turns, None)) == 16


# What is held where


def test_a_deployment_that_answered_holds_the_prompt_for_five_minutes_since_its_last_use() -> None:
    affinity = Affinity()
    affinity.served(MODEL, CHAT, "a", None, 0.0)
    assert affinity.held(MODEL, CHAT, PRICES, CACHE_WARM_S - 1) == {"a": 8 * KB}
    affinity.served(MODEL, CHAT, "a", 1000, CACHE_WARM_S - 1)
    assert affinity.held(MODEL, CHAT, PRICES, CACHE_WARM_S + 1) == {"a": 8 * KB}
    assert affinity.held(MODEL, CHAT, PRICES, 2 * CACHE_WARM_S) == {}


def test_each_holds_as_much_of_a_prompt_as_it_was_sent() -> None:
    affinity = Affinity()
    longer = prefix(10 * KB, 30 * KB)
    affinity.served(MODEL, CHAT, "a", None, 0.0)
    affinity.served(MODEL, longer, "b", None, 1.0)
    assert affinity.held(MODEL, prefix(10 * KB, 30 * KB, 90 * KB), PRICES, 2.0) == {"a": 8 * KB, "b": 32 * KB}


def test_only_where_a_cache_saves_something_is_it_worth_going_back() -> None:
    affinity = Affinity()
    for name in "abcd":
        affinity.served(MODEL, CHAT, name, None, 0.0)
    affinity.served(MODEL, CHAT, "c", 2000, 0.0)  # no price says so, but it reads from a cache
    prices = {"a": CACHING, "b": FLAT, "c": FLAT}
    assert affinity.held(MODEL, CHAT, prices, 1.0) == {"a": 8 * KB, "c": 8 * KB}
    assert affinity.held(MODEL, CHAT, None, 1.0) == {"c": 8 * KB}


def test_after_two_misses_in_a_row_no_cache_is_expected() -> None:
    affinity = Affinity()
    affinity.served(MODEL, CHAT, "a", 0, 0.0)  # the first time it must be read
    affinity.served(MODEL, CHAT, "a", 0, 1.0)
    assert affinity.held(MODEL, CHAT, PRICES, 2.0) == {"a": 8 * KB}
    affinity.served(MODEL, CHAT, "a", None, 2.0)  # not to be told is not to be told of a miss
    assert affinity.held(MODEL, CHAT, PRICES, 3.0) == {"a": 8 * KB}
    affinity.served(MODEL, CHAT, "a", 0, 3.0)
    assert affinity.held(MODEL, CHAT, PRICES, 4.0) == {}
    affinity.served(MODEL, CHAT, "a", 2000, 4.0)
    assert affinity.held(MODEL, CHAT, PRICES, 5.0) == {"a": 8 * KB}


def test_reading_anew_what_was_cold_is_no_miss() -> None:
    affinity = Affinity()
    for turn in range(4):
        affinity.served(MODEL, CHAT, "a", 0, turn * (CACHE_WARM_S + 1))
    assert affinity.held(MODEL, CHAT, PRICES, 3 * (CACHE_WARM_S + 1) + 1) == {"a": 8 * KB}


def test_a_conversation_that_shares_a_missed_beginning_is_judged_by_its_own() -> None:
    affinity = Affinity()
    for number in range(6):
        affinity.served(MODEL, Prefix((1, 100 + number)), "a", 0, 0.0)
    assert affinity.held(MODEL, Prefix((1,)), PRICES, 1.0) == {}
    assert affinity.held(MODEL, Prefix((1, 105)), PRICES, 1.0) == {"a": 8 * KB}


def test_models_hold_nothing_for_each_other() -> None:
    affinity = Affinity()
    affinity.served(MODEL, CHAT, "a", None, 0.0)
    assert affinity.held("other", CHAT, PRICES, 1.0) == {}


def test_memory_is_bounded_and_the_longest_unused_goes_first() -> None:
    affinity = Affinity()
    for number in range(PREFIXES_KEPT):
        affinity.served(MODEL, Prefix((2 * number, 2 * number + 1)), "a", None, 0.0)
        affinity.served(MODEL, Prefix((0, 1)), "a", None, 0.0)
    assert len(affinity) == PREFIXES_KEPT
    assert affinity.held(MODEL, Prefix((2, 3)), PRICES, 0.0) == {}
    assert affinity.held(MODEL, Prefix((0, 1)), PRICES, 0.0) == {"a": 8 * KB}


def test_of_a_prompt_partly_forgotten_the_shorter_beginnings_are_still_known() -> None:
    affinity = Affinity()
    affinity.served(MODEL, Prefix((-1, -2, -3)), "a", None, 0.0)
    for number in range(PREFIXES_KEPT - 1):
        affinity.served(MODEL, Prefix((number,)), "a", None, 0.0)
    assert affinity.held(MODEL, Prefix((-1, -2, -3)), PRICES, 0.0) == {"a": 4 * KB}


def test_what_went_cold_is_forgotten() -> None:
    affinity = Affinity()
    for number in range(100):
        affinity.served(MODEL, Prefix((number,)), "a", None, float(number))
    affinity.served(MODEL, Prefix((1000,)), "a", None, CACHE_WARM_S + 50.0)
    assert len(affinity) == 50


def test_a_cache_has_as_many_tokens_as_the_last_prompt_that_began_so() -> None:
    affinity, longer = Affinity(), prefix(10 * KB, 30 * KB)
    affinity.served(MODEL, CHAT, "a", 0, 0.0, prompt_tokens=2_500)
    affinity.served(MODEL, CHAT, "b", 0, 0.0)
    held = affinity.held(MODEL, CHAT, PRICES, 1.0)
    assert affinity.cached_tokens(MODEL, CHAT, held, 9_000) == {"a": 2_500, "b": 2_048}
    assert affinity.cached_tokens(MODEL, CHAT, held, 2_100) == {"a": 2_100, "b": 2_048}
    assert affinity.cached_tokens(MODEL, longer, affinity.held(MODEL, longer, PRICES, 1.0), 9_000)["a"] == 2_500
    affinity.served(MODEL, longer, "a", 0, 0.0, prompt_tokens=9_000)  # of which the next one has only the beginning
    other = prefix(10 * KB, 90 * KB)
    held = affinity.held(MODEL, Prefix((*CHAT.digests, -1)), PRICES, 1.0)
    assert affinity.cached_tokens(MODEL, Prefix((*CHAT.digests, -1)), held, 20_000)["a"] == 4_096
    assert other.digests[:2] == CHAT.digests


# What steering makes of it


def test_the_next_turn_goes_where_the_last_one_went() -> None:
    replica = equals()
    assert len({primary(replica.plan(prefix=each, prices=PRICES))[0] for each in CHATS}) == 3
    replica.steering.served(MODEL, CHAT, "b", None)
    longer = prefix(10 * KB, 30 * KB)
    for _ in range(50):
        assert primary(replica.plan(prefix=longer, prices=PRICES)) == ("b", Why.CACHE_WARM)


def test_of_those_that_have_what_all_sessions_share_the_one_that_answered_a_session_is_asked() -> None:
    replica = equals()
    for name in "abc":
        replica.steering.served(MODEL, prefix(10 * KB, session=name), name, None)
    for name in "abc":
        plans = [replica.plan(prefix=prefix(10 * KB, session=name), prices=PRICES) for _ in range(20)]
        assert {primary(plan) for plan in plans} == {(name, Why.CACHE_WARM)}
    others = {primary(replica.plan(prefix=prefix(10 * KB, session="new"), prices=PRICES))[0] for _ in range(50)}
    assert others == set("abc")  # a new session is cached as well by any


def test_a_session_does_not_part_from_a_longer_beginning_that_another_has() -> None:
    replica = equals()
    helper = prefix_of([b"h" * 20 * KB], None, "one")
    assert helper is not None
    replica.steering.served(MODEL, prefix_of([b"h" * 20 * KB], None, "two"), "b", None)  # type: ignore[arg-type] # it is long enough
    replica.steering.served(MODEL, prefix(10 * KB, session="one"), "a", None)
    replica.steering.served(MODEL, prefix(10 * KB, session="two"), "c", None)
    assert {primary(replica.plan(prefix=helper, prices=PRICES)) for _ in range(20)} == {("b", Why.CACHE_WARM)}
    assert {primary(replica.plan(prefix=prefix(10 * KB, session="one"), prices=PRICES))[0] for _ in range(20)} == {"a"}


@pytest.mark.parametrize("trouble", ["slow", "out", "limited"])
def test_a_session_leaves_a_deployment_that_is_slower_or_may_not_be_asked(trouble: str) -> None:
    replica = VirtualReplica(("a", "b", "c"))
    replica.warm_up(30, a=0.9 if trouble == "slow" else 0.3, b=0.3, c=0.3)
    for name in "bca":
        replica.steering.served(MODEL, prefix(10 * KB, session="one"), name, None)
    if trouble == "out":
        replica.fail("a", ErrorKind.PROVIDER_AUTH)
    if trouble == "limited":
        replica.steering._learning.healths["a"].limit_left(0.05, replica.now_s)
    plans = [replica.plan(prefix=prefix(10 * KB, session="one"), prices=PRICES) for _ in range(50)]
    assert {primary(plan) for plan in plans} == {("b", Why.CACHE_WARM), ("c", Why.CACHE_WARM)}


def test_who_was_asked_a_beginning_is_known_as_long_as_a_cache_lives() -> None:
    affinity, longer = Affinity(), prefix(10 * KB, 30 * KB)
    affinity.asked(MODEL, CHAT, "ab", 0.0)
    affinity.asked(MODEL, longer, "b", 1.0)
    assert affinity.known_bytes(MODEL, longer, 2.0) == {"a": 8 * KB, "b": 32 * KB}
    assert affinity.known_bytes(MODEL, CHAT, 2.0) == {"a": 8 * KB, "b": 8 * KB}
    assert affinity.known_bytes(MODEL, prefix(9 * KB, key="other"), 2.0) == {}
    assert affinity.known_bytes(MODEL, longer, CACHE_WARM_S) == {"b": 32 * KB}
    assert affinity.held(MODEL, CHAT, PRICES, 2.0) == {}  # nobody has answered


def test_sessions_are_forgotten_as_beginnings_are() -> None:
    affinity = Affinity()
    for number in range(PREFIXES_KEPT + 10):
        affinity.served(MODEL, Prefix((1,), session=number + 2), "a", None, 0.0)
    assert len(affinity) == PREFIXES_KEPT
    affinity.served(MODEL, Prefix((1,)), "a", None, CACHE_WARM_S)
    assert len(affinity) == 1


def test_once_it_is_cold_it_is_sent_as_one_that_nobody_knows() -> None:
    replica = equals()
    replica.steering.served(MODEL, CHAT, "b", None)
    replica.now_s += CACHE_WARM_S
    assert {primary(replica.plan(prefix=CHAT, prices=PRICES))[1] for _ in range(20)} == {Why.RENDEZVOUS}


def test_other_conversations_are_spread_as_ever() -> None:
    replica = equals()
    replica.steering.served(MODEL, CHAT, "b", None)
    sent = Counter(primary(replica.plan(prefix=each, prices=PRICES)) for each in CHATS)
    assert set(sent) == {(name, Why.RENDEZVOUS) for name in "abc"}
    assert min(sent.values()) > len(CHATS) / 4


def test_a_warm_cache_is_not_worth_a_clearly_slower_answer() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.3, b=0.9)
    replica.steering.served(MODEL, CHAT, "b", None)
    assert {primary(replica.plan(prefix=CHAT, prices=PRICES)) for _ in range(50)} == {("a", Why.DRAWN)}


@pytest.mark.parametrize(
    "trouble",
    [
        lambda replica: replica.fail("b", ErrorKind.RATE_LIMITED, retry_after_s=20.0),
        lambda replica: [replica.fail("b") for _ in range(4)],
        lambda replica: replica.fail("b", ErrorKind.PROVIDER_AUTH),
    ],
    ids=["cooling", "broken", "out"],
)
def test_whoever_may_not_be_asked_is_not_asked_for_its_cache(trouble: Callable[[VirtualReplica], object]) -> None:
    replica = equals()
    replica.steering.served(MODEL, CHAT, "b", None)
    trouble(replica)
    assert "b" not in {primary(replica.plan(prefix=CHAT, prices=PRICES))[0] for _ in range(50)}


def test_a_rate_limit_nearly_used_up_is_not_pressed_for_a_cache() -> None:
    replica = equals()
    replica.steering.served(MODEL, CHAT, "b", None)
    replica.steering._learning.healths["b"].limit_left(0.05, replica.now_s)
    drawn = Counter(primary(replica.plan(prefix=CHAT, prices=PRICES)) for _ in range(200))
    assert {why for _, why in drawn} == {Why.DRAWN}
    assert drawn["b", Why.DRAWN] < 60


def test_it_can_be_switched_off() -> None:
    replica = equals()
    replica.steering.served(MODEL, CHAT, "b", None)
    plans = [replica.plan(prefix=CHAT, prices=PRICES, cache_affinity=False) for _ in range(50)]
    assert {primary(plan)[1] for plan in plans} == {Why.DRAWN}


def test_the_race_beside_it_is_as_usual() -> None:
    replica = VirtualReplica(("a", "b", "c"))
    replica.warm_up(a=0.3, b=0.33, c=0.6)
    replica.steering.served(MODEL, CHAT, "b", None)
    plans = [replica.plan(prefix=CHAT, prices=PRICES) for _ in range(100)]
    assert {primary(plan) for plan in plans} == {("b", Why.CACHE_WARM)}
    seconds = Counter((plan.launches[1].deployment, plan.launches[1].role) for plan in plans)
    assert seconds["a", Role.RACE] > 90


def test_who_holds_most_of_the_prompt_comes_first() -> None:
    replica = equals()
    longer = prefix(10 * KB, 30 * KB)
    replica.steering.served(MODEL, longer, "c", None)
    replica.steering.served(MODEL, CHAT, "a", None)
    assert {primary(replica.plan(prefix=longer, prices=PRICES))[0] for _ in range(30)} == {"c"}


def test_those_who_hold_as_much_share_the_calls() -> None:
    replica = equals()
    for name in "ab":
        replica.steering.served(MODEL, CHAT, name, None)
    drawn = Counter(primary(replica.plan(prefix=CHAT, prices=PRICES)) for _ in range(600))
    assert set(drawn) == {("a", Why.CACHE_WARM), ("b", Why.CACHE_WARM)}
    assert min(drawn.values()) > 220
    for _ in range(5):
        replica.launch("a")
    drawn = Counter(primary(replica.plan(prefix=CHAT, prices=PRICES)) for _ in range(600))
    assert drawn["a", Why.CACHE_WARM] < 220  # of two draws the one with less in flight


def test_under_cost_a_cache_does_not_outweigh_the_price() -> None:
    replica = equals("ab")
    replica.steering.served(MODEL, CHAT, "b", None)
    prices = {"a": CACHING, "b": Price(9e-6, 4e-6, cached_input_usd=1e-6)}
    plan = replica.plan(prefix=CHAT, prices=prices, objective=Objective.COST, mode=Mode.SINGLE)
    assert primary(plan) == ("a", Why.DRAWN)


def test_a_plan_says_that_a_cache_is_warm_and_how_much_it_holds() -> None:
    replica = equals()
    replica.steering.served(MODEL, CHAT, "b", None)
    told = replica.plan(prefix=CHAT, prices=PRICES, explain=True).explanation
    assert told is not None
    assert told.launches[0].why == (
        "cache warm: of 3 that are about equally good its provider should hold most of the prompt, the first 8 KB"
    )
    prospects = {each.deployment: each for each in told.deployments}
    assert [(prospects[name].held_bytes, prospects[name].draw) for name in "abc"] == [(None, 0), (8 * KB, 1), (None, 0)]
    assert all(each.near for each in prospects.values())


def test_what_is_forgotten_of_deployments_no_longer_configured_is_that_they_cache() -> None:
    replica = VirtualReplica(("a",))
    replica.steering.served(MODEL, CHAT, "gone", 1000)
    replica.plan()
    replica.now_s += 60
    replica.plan()
    assert replica.steering._affinity.held(MODEL, CHAT, None, replica.now_s) == {}
