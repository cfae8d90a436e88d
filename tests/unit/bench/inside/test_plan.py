from collections import Counter

import msgspec

from gateway.bench import CLASSES, FIXED, BenchPlan, Contender, Key, TokenLengths
from gateway.bench.plan import body, salt, ship_log, turns, warm_up
from tests.unit.bench.inside.samples import plan


def test_each_round_asks_every_deployment_the_same_in_another_order() -> None:
    of = plan("a/m", "b/m", "c/m", concurrencies=(1, 4))
    orders = []
    for round_ in range(of.rounds):
        found = list(turns(of, round_))
        keys = [key for turn in found for key in turn.keys]
        assert Counter((key.deployment, key.concurrency, key.kind) for key in keys) == {
            (name, level, kind): level for name in ("a/m", "b/m", "c/m") for level in (1, 4) for kind in of.kinds
        }
        assert len(keys) == len(set(keys))
        orders.append([(turn.contender.name, turn.concurrency) for turn in found])
    assert len({tuple(order) for order in orders}) > 1
    assert of.requests == sum(len(turn.keys) for round_ in range(of.rounds) for turn in turns(of, round_))


def test_a_resumed_bench_has_the_same_order_and_other_salts() -> None:
    of = plan("a/m", "b/m")
    assert list(turns(of, 3)) == list(turns(of, 3))
    key = Key(0, 1, "a/m", "short", 0)
    assert salt(of, key, 0) == salt(of, key, 0) != salt(of, key, 1)
    others = {salt(of, Key(round_, 1, name, "short", 0), 0) for round_ in range(9) for name in ("a/m", "b/m")}
    assert len(others) == 18


def test_a_class_that_a_deployment_cannot_do_is_not_asked() -> None:
    able, unable = Contender(name="a/m", model="m"), Contender(name="b/m", model="m", leaves_out={"json": "no"})
    of = plan(contenders=(able, unable))
    asked = {(key.deployment, key.kind) for turn in turns(of, 0) for key in turn.keys}
    assert asked == {("a/m", "short"), ("a/m", "json"), ("b/m", "short")}
    assert of.requests == 30


def test_warming_up_asks_each_deployment_and_counts_for_no_round() -> None:
    of = plan("a/m", "b/m", warm_up=3)
    keys = [key for turn in warm_up(of) for key in turn.keys]
    assert Counter(key.deployment for key in keys) == {"a/m": 3, "b/m": 3}
    assert {key.round for key in keys} == {-1}


def test_names_lose_a_model_that_all_have() -> None:
    assert plan("a/m", "b/m").labels == {"a/m": "a", "b/m": "b"}
    assert plan("a/m", "b/n").labels == {"a/m": "a/m", "b/n": "b/n"}
    assert plan("a/m", "a/m2").labels == {"a/m": "a/m", "a/m2": "a/m2"}


def test_prompts_are_fixed_words_with_or_without_a_salt() -> None:
    for kind in CLASSES:
        salted, other = body(kind, TokenLengths(), "5a17", "m"), body(kind, TokenLengths(), "beef", "m")
        assert salted != other
        assert salted.replace(b"5a17", b"beef") == other
        fixed = f"{kind}{FIXED}"
        assert body(fixed, TokenLengths(), "one", "m") == body(fixed, TokenLengths(), "two", "m")
    assert b'"max_tokens":512' in body("long_answer", TokenLengths(), "x", "m")
    assert 15_000 < len(ship_log(4000)) < 21_000


def test_a_plan_is_read_back_from_its_json() -> None:
    of = plan("a/m", "b/m")
    assert msgspec.json.decode(msgspec.json.encode(of), type=BenchPlan) == of
