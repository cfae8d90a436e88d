"""What refusals have taught about a provider's models: for a day, bounded, and told once."""

from providers.learnt import DAY_S, LONGEST_NAME, MOST_FACTS, MOST_MODELS, SUPPOSED_S, Fact, Kind, Learnt

EFFORT = Fact(Kind.FIELD, "reasoning_effort", dialect="chat")
LIMIT = Fact(Kind.NAME, "max_tokens", "max_completion_tokens", dialect="chat")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def learnt() -> tuple[Learnt, Clock, list[tuple[str, Fact, float]]]:
    told: list[tuple[str, Fact, float]] = []
    clock = Clock()
    return Learnt(lambda *fact: told.append(fact), wall_clock=clock), clock, told


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
