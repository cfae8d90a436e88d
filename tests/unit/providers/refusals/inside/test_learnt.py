"""What refusals have taught about a provider's models: for a day, bounded, and told once."""

import pytest

from providers import FORMER
from providers.refusals import LONGEST_NAME, Fact, Kind, LearntFacts
from providers.refusals.learnt import DAY_S, MOST_CLIENTS, MOST_FACTS, MOST_MODELS, MOST_MODELS_OF_CLIENT, SUPPOSED_S

EFFORT = Fact(Kind.FIELD, "reasoning_effort", dialect="chat")
LIMIT = Fact(Kind.NAME, "max_tokens", "max_completion_tokens", dialect="chat")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def learnt() -> tuple[LearntFacts, Clock, list[tuple[str, Fact, float]]]:
    told: list[tuple[str, Fact, float]] = []
    clock = Clock()
    return LearntFacts(lambda *fact: told.append(fact[:3]), wall_clock=clock), clock, told


def test_a_fact_holds_for_a_day_and_is_told_once() -> None:
    known, clock, told = learnt()
    known.note("m", EFFORT)
    known.note("m", EFFORT)
    assert (known.of("m"), known.of("another")) == ((EFFORT,), ())
    assert told == [("m", EFFORT, 1000.0 + DAY_S)]
    clock.now += DAY_S
    assert known.of("m") == ()
    assert known.models == {}


def test_what_another_replica_has_told_is_known_until_it_says_and_not_told_again() -> None:
    known, clock, told = learnt()
    for model, fact, until in (("m", EFFORT, 1010.0), ("m", LIMIT, 999.0), ("n", EFFORT, 1e12)):
        known.note(model, fact, until=until)
    assert known.models == {"m": (EFFORT,), "n": (EFFORT,)}
    assert told == []
    clock.now = 1010.0
    assert known.models == {"n": (EFFORT,)}
    clock.now = 1000.0 + DAY_S
    assert known.models == {}


def test_clients_that_name_any_model_and_any_field_fill_no_memory() -> None:
    known, _, _ = learnt()
    for number in range(2 * MOST_MODELS):
        known.note(f"m{number}", EFFORT)
    for number in range(2 * MOST_FACTS):
        known.note("m", Fact(Kind.FIELD, f"f{number}", dialect="chat"))
    known.note("n" * (LONGEST_NAME + 1), EFFORT)
    known.note("n", Fact(Kind.FIELD, "f" * (LONGEST_NAME + 1), dialect="chat"))
    assert len(known.models) == MOST_MODELS
    assert [fact.field for fact in known.of("m")] == [f"f{number}" for number in range(MOST_FACTS, 2 * MOST_FACTS)]
    assert known.of("n") == ()


def test_schemas_of_many_requests_displace_only_each_other() -> None:
    known, _, _ = learnt()
    known.note("m", EFFORT)
    for number in range(2 * MOST_FACTS):
        known.note("m", Fact(Kind.SCHEMAS, value=f"digest{number}", dialect="chat"))
    assert EFFORT in known.of("m")
    assert len(known.of("m")) == MOST_FACTS


def test_a_fact_that_is_refused_as_well_is_forgotten_or_replaced() -> None:
    known, _, _ = learnt()
    known.note("m", EFFORT)
    known.note("m", LIMIT)
    back = Fact(Kind.NAME, "max_completion_tokens", "max_tokens", dialect="chat")
    known.note("m", back)
    assert known.of("m") == (EFFORT, back)
    known.forget("m", [EFFORT])
    assert known.of("m") == (back,)
    known.forget("m", [back])
    assert known.models == {}


def test_what_is_supposed_is_used_for_a_minute_and_told_once_it_is_confirmed() -> None:
    known, clock, told = learnt()
    known.suppose("m", EFFORT)
    known.suppose("m", LIMIT)
    assert (known.of("m"), told) == ((EFFORT, LIMIT), [])
    known.confirm("m", (EFFORT,))
    assert [fact for _, fact, _ in told] == [EFFORT]
    clock.now += SUPPOSED_S
    assert known.of("m") == (EFFORT,)
    assert known.supposed == set()


def test_an_api_that_is_missing_and_a_prompt_that_is_too_long_are_facts_too() -> None:
    known, _, _ = learnt()
    known.note("m", Fact(Kind.API, "responses", "chat"))
    known.note("m", Fact(Kind.LENGTH, tokens=200_000))
    known.note("m", Fact(Kind.LENGTH, tokens=150_000))
    told = [known.instead_of("m", api, tools=False) for api in ("responses", "messages")]
    assert told == ["chat", "messages"]
    assert (known.refused_length("m"), known.refused_length("n")) == (150_000, None)


def test_an_api_that_is_refused_leads_to_the_one_that_answered_and_never_in_a_circle() -> None:
    known, _, _ = learnt()
    known.note("m", Fact(Kind.API, "messages", "chat"))
    known.note("m", Fact(Kind.TOOLS, "chat", "responses"))
    assert known.instead_of("m", "messages", tools=False) == "chat"
    assert known.instead_of("m", "messages", tools=True) == "responses"
    known.note("m", Fact(Kind.API, "responses", "messages"))
    assert known.instead_of("m", "messages", tools=True) == "messages"
    assert known.steers


def test_an_api_is_tried_anew_after_a_day_and_a_length_after_an_hour() -> None:
    known, clock, _ = learnt()
    known.note("m", Fact(Kind.API, "messages", "chat"))
    known.note("m", Fact(Kind.LENGTH, tokens=9))
    clock.now += 3_600.0
    assert (known.refused_length("m"), known.instead_of("m", "messages", tools=False)) == (None, "chat")
    clock.now += 86_400.0
    assert known.instead_of("m", "messages", tools=False) == "messages"
    assert not known.steers


def test_what_one_client_has_met_holds_for_it_alone_and_from_the_second_on_for_all() -> None:
    known, _, _ = learnt()
    known.note("m", EFFORT, client="ann")
    assert [known.of("m", client) for client in ("ann", "bob", None)] == [(EFFORT,), (), ()]
    known.note("m", EFFORT, client="ann")
    assert known.of("m", "bob") == ()
    known.note("m", EFFORT, client="bob")
    assert {known.of("m", client) for client in ("ann", "bob", "cid", None)} == {(EFFORT,)}
    assert [each.met.clients for each in known.listed()] == [("ann", "bob")]


def test_of_two_lengths_the_one_that_both_clients_have_met_holds_for_all() -> None:
    known, _, _ = learnt()
    for client, tokens in (("eve", 10), ("ann", 9_000), ("bob", 8_000), ("cid", 7_000)):
        known.note("m", Fact(Kind.LENGTH, tokens=tokens), client=client)
    told = {client: known.refused_length("m", client) for client in ("eve", "ann", "cid", "dan")}
    assert told == {"eve": 10, "ann": 7_000, "cid": 7_000, "dan": 7_000}


@pytest.mark.parametrize("kind", [*Kind])
def test_what_clients_suppose_is_theirs_until_an_answer_confirms_it_for_one_of_them(kind: Kind) -> None:
    known, clock, told = learnt()
    fact = Fact(kind, "f", "x" if kind is not Kind.VALUE else '"x"', value='"y"', dialect="chat", tokens=9)
    for client in ("ann", "bob", "cid"):  # as where the prompts of all three quote an error: each form is refused
        known.suppose("m", fact, client=client)
        assert known.of("m", client) == (fact,)
    known.confirm("m", known.of("m", "dan"), "dan")  # an answer to whom nothing was refused says nothing
    assert (known.of("m", "dan"), told) == ((), [])
    known.confirm("m", (fact,), "ann")
    clock.now += SUPPOSED_S
    assert [known.of("m", client) for client in ("ann", "bob", "dan")] == [(fact,)] * 3
    assert {each for _, each, _ in told} == {fact}


def test_what_holds_for_all_is_forgotten_for_all_once_two_clients_find_it_wrong() -> None:
    known, _, told = learnt()
    for client in ("ann", "bob"):
        known.note("m", EFFORT, client=client)
    for _ in range(2):
        known.forget("m", [EFFORT], "eve")
    assert [known.of("m", client) for client in ("eve", "ann", "cid")] == [(), (EFFORT,), (EFFORT,)]
    known.forget("m", [EFFORT], "cid")
    assert known.models == {}
    assert [until for *_, until in told][2:] == [0.0, 0.0]


def test_clients_that_name_any_field_displace_nothing_of_others() -> None:
    known, _, told = learnt()
    known.note("m", EFFORT, client="ann")
    known.note("m", LIMIT, client="bob")
    known.note("m", LIMIT, client="cid")
    for number in range(2_000):
        known.note(f"m{number % 40}", Fact(Kind.FIELD, f"f{number}", dialect="chat"), client="eve")
        known.suppose("m", Fact(Kind.FIELD, f"g{number}", dialect="chat"), client="eve")
    assert known.of("m", "ann") == (LIMIT, EFFORT)
    assert sum(each.met.clients == ("eve",) for each in known.listed()) <= MOST_FACTS * MOST_MODELS_OF_CLIENT
    ended = {fact for _, fact, until in told if not until}
    assert Fact(Kind.FIELD, "f0", dialect="chat") in ended
    for number in range(2 * MOST_CLIENTS):
        known.note("m", Fact(Kind.FIELD, f"f{number}", dialect="chat"), client=f"c{number}")
    assert known.of("m", "zoe") == (LIMIT,)
    assert len({client for each in known.listed() for client in each.met.clients}) <= MOST_CLIENTS + 3


def test_what_a_former_replica_tells_without_a_client_counts_as_nobodys() -> None:
    known, _, _ = learnt()
    known.note("m", EFFORT, client=FORMER, until=1e12)
    assert (known.of("m"), known.of("m", "ann")) == ((EFFORT,), ())
    known.note("m", EFFORT, client="ann")
    assert (known.of("m", "ann"), known.of("m", "bob")) == ((EFFORT,), ())


def test_what_an_operator_drops_holds_for_nobody() -> None:
    known, clock, _ = learnt()
    known.note("m", EFFORT, client="ann")
    known.note("m", LIMIT)
    clock.now += 5.0
    assert known.drop("m", EFFORT, before=999.0) is False
    assert (known.drop("m", EFFORT), known.drop("m", LIMIT)) == (True, True)
    assert (known.models, known.is_any) == ({}, False)


def test_what_only_others_have_met_is_a_supposition_until_it_holds_for_all() -> None:
    known, clock, _ = learnt()
    known.note("m", EFFORT, client="eve")
    assert [known.met_by_others("m", each) for each in ("bob", "eve", None)] == [(EFFORT,), (), ()]
    assert known.met_by_others("n", "bob") == ()
    known.note("m", EFFORT, client="bob")
    assert (known.met_by_others("m", "cid"), known.of("m", "cid"), known.is_of_some) == ((), (EFFORT,), False)
    known.note("m", LIMIT, client="eve")
    clock.now += DAY_S
    assert known.met_by_others("m", "cid") == ()
