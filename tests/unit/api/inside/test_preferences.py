"""What requests written for OpenRouter or LiteLLM say of who is to answer, as it is understood here."""

from typing import Any

import msgspec
import pytest

from gateway.access import Client
from gateway.api import NOTHING
from gateway.api.preferences import (
    CONSUMED,
    LONGEST_SLUG,
    MOST_MODELS,
    MOST_SLUGS,
    DeploymentChoice,
    MaxPrice,
    Preferences,
    is_passed_on,
    policy_violation,
    preferred,
    read_preferences,
)
from gateway.core.calls import Mode, Objective
from gateway.core.errors import Forbidden, InvalidRequest
from gateway.fleet import Clocks, Deployment, Model
from gateway.settings import DataPolicy, RaceSettings
from providers import Exchange, Price, Request, UpstreamAnswer


class Nobody:
    """An upstream that is never asked."""

    accepts_all_parameters = True
    refused_fields = frozenset[str]()

    async def stream(self, request: Request) -> Exchange:
        raise AssertionError(request)

    async def send(self, path: str, request: Request) -> UpstreamAnswer:
        raise AssertionError(request)

    def losses(self, *_: Any) -> tuple[()]:
        return ()

    async def aclose(self) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


def deployment(name: str, **said: Any) -> Deployment:
    provider, _, model = name.partition("/")
    said = {"vendor": provider, "price": None, "extra_body": {}, **said}
    return Deployment(
        name=name,
        provider=provider,
        model=model,
        upstream=Nobody(),
        clocks=Clocks(1, 1, 1, None),
        bills_after_disconnect=None,
        upstream_stream=True,
        **said,
    )


GROQ = deployment("groq/llama-70b", price=Price(0.6e-6, 0.8e-6), zdr=True)
TOGETHER = deployment("together/Llama-70B-Turbo", price=Price(0.9e-6, 0.9e-6), quantization="fp8")
DEEPINFRA = deployment("deepinfra/llama-70b", quantization="FP8", zdr=True)
VERTEX = deployment("vertex/llama", vendor="vertex_ai", region="europe-west4")
ALL = (GROQ, TOGETHER, DEEPINFRA, VERTEX)


def read(**fields: Any) -> Preferences:
    return read_preferences({name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()})


def chosen(
    deployments: tuple[Deployment, ...] = ALL,
    client: Client | None = None,
    race: RaceSettings | None = None,
    **provider: Any,
) -> DeploymentChoice:
    """Who may answer a request with this ``provider`` object."""
    model = Model("m", {each.name: each for each in deployments}, race or RaceSettings())
    return preferred(read(provider=provider), model, deployments, client)


def left(deployments: tuple[Deployment, ...] = ALL, **provider: Any) -> list[str]:
    return [each.provider for each in chosen(deployments, **provider).deployments]


def test_a_request_that_says_nothing_costs_nothing() -> None:
    assert read(model="m", messages=[], temperature=0.2) is NOTHING


@pytest.mark.parametrize(
    ("field", "value"),
    [("models", []), ("provider", {}), ("transforms", []), ("route", None), ("fastest_response", False)],
)
def test_a_field_that_asks_for_nothing_is_still_taken_out(field: str, value: Any) -> None:
    assert field in CONSUMED
    assert read(**{field: value}) == NOTHING
    assert read(**{field: value}) is not NOTHING  # so that the field goes no further


def test_the_fields_themselves_are_left_as_they_are() -> None:
    fields = {"provider": msgspec.Raw(b'{"sort":"price"}'), "model": msgspec.Raw(b'"m"')}

    read_preferences(fields)

    assert bytes(fields["provider"]) == b'{"sort":"price"}'
    assert list(fields) == ["provider", "model"]


def test_models_are_tried_in_their_order_after_the_one_named_by_itself() -> None:
    assert read(models=["a", "b"]).models == ("a", "b")
    assert read(model="c", models=["a", "b", "a"]).models == ("c", "a", "b")
    assert read(model="a", models=["a", "b"], route="fallback").models == ("a", "b")


def test_everything_openrouter_takes_is_read() -> None:
    said = read(
        provider={
            "order": ["groq"],
            "only": ["groq", "together"],
            "ignore": ["azure"],
            "allow_fallbacks": False,
            "sort": "price",
            "preferred_max_latency": 2.5,
            "preferred_min_throughput": 40,
            "require_parameters": True,
            "data_collection": "deny",
            "quantizations": ["FP8", "bf16"],
            "max_price": {"prompt": 1, "completion": "2.5"},
        }
    )

    assert (said.order, said.only, said.ignore) == (("groq",), ("groq", "together"), ("azure",))
    assert not said.allow_fallbacks
    assert said.sort is Objective.COST
    assert (said.ttft_ms, said.min_tok_s) == (2500, 40)
    assert said.require_parameters
    assert (said.policy.zdr, said.policy.quantizations) == (True, ("fp8", "bf16"))
    assert said.max_price == MaxPrice(1, 2.5)


@pytest.mark.parametrize(
    ("sort", "objective"),
    [
        ("throughput", Objective.COMPLETION),
        ("latency", Objective.FIRST_TOKEN),
        ("price", Objective.COST),
        ({"by": "latency", "partition": "none"}, Objective.FIRST_TOKEN),
        ({"by": None}, None),
        (None, None),
    ],
)
def test_what_is_sorted_by_is_an_objective(sort: Any, objective: Objective | None) -> None:
    assert read(provider={"sort": sort}).sort is objective


def test_of_several_percentiles_the_one_we_judge_by_counts() -> None:
    said = read(
        provider={
            "preferred_max_latency": {"p50": 1, "p90": 3, "p99": 9},
            "preferred_min_throughput": {"p50": 80, "p90": 30},
        }
    )

    assert (said.ttft_ms, said.min_tok_s) == (3000, 80)
    assert read(provider={"preferred_max_latency": {"p50": 1}}).ttft_ms == 1000


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"models": "a"}, "models"),
        ({"models": [""]}, "models"),
        ({"models": ["\u4e2d" * 342]}, "models"),  # more bytes than an index of the ledger takes
        ({"route": "cheapest"}, "route"),
        ({"transforms": "middle-out"}, "transforms"),
        ({"fastest_response": "yes"}, "fastest_response"),
        ({"provider": ["groq"]}, "provider"),
        ({"provider": {"only": "groq"}}, "provider"),
        ({"provider": {"only": [" "]}}, "provider.only"),
        ({"provider": {"sort": "quality"}}, "provider"),
        ({"provider": {"preferred_max_latency": 0}}, "provider.preferred_max_latency"),
        ({"provider": {"preferred_min_throughput": {"p50": -1}}}, "provider.preferred_min_throughput"),
        ({"provider": {"max_price": {"prompt": "cheap"}}}, "provider.max_price.prompt"),
        ({"provider": {"max_price": {"completion": "nan"}}}, "provider.max_price.completion"),
    ],
)
def test_nonsense_is_refused_by_its_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read(**fields)

    assert refused.value.param == param


@pytest.mark.parametrize(
    ("provider", "param"),
    [
        ({"enforce_distillable_text": True}, "provider.enforce_distillable_text"),
        ({"max_price": {"image": 0.1}}, "provider.max_price.image"),
    ],
)
def test_a_demand_that_cannot_be_assured_is_refused_here_but_may_go_to_openrouter(
    provider: dict[str, Any], param: str
) -> None:
    assert read(provider=provider).unmet == (param,)

    with pytest.raises(InvalidRequest, match="cannot be guaranteed") as refused:
        chosen(**provider)

    assert refused.value.param == param
    nothing: dict[str, Any] = dict.fromkeys(provider)
    assert left(**nothing) == ["groq", "together", "deepinfra", "vertex"]


def test_a_wish_that_changes_nothing_here_is_told() -> None:
    model = Model("m", {GROQ.name: GROQ}, RaceSettings())

    said = read(transforms=["middle-out"], provider={"sort": {"by": "price", "partition": "none"}})

    assert preferred(said, model, [GROQ]).unsupported == ("transforms", "provider.sort")


def test_only_those_named_are_asked_and_the_others_are_told_why() -> None:
    result = chosen(only=["Groq", "google-vertex"])

    assert [each.provider for each in result.deployments] == ["groq", "vertex"]
    assert result.excluded[TOGETHER.name] == "is not in provider.only (Groq, google-vertex)"


def test_a_provider_under_a_name_of_its_own_is_known_by_its_vendor_too() -> None:
    second = deployment("groq-2/llama", vendor="groq")

    assert left((GROQ, second), only=["groq"]) == ["groq", "groq-2"]
    assert left((GROQ, second), only=["groq-2"]) == ["groq-2"]


def test_who_is_asked_behind_an_aggregator_is_known_by_its_own_name() -> None:
    minimax = deployment("openrouter/m2", extra_body={"provider": msgspec.Raw(b'{"only":["Minimax/fp8"]}')})

    assert left((minimax, GROQ), only=["minimax"]) == ["openrouter"]
    assert left((minimax, GROQ), ignore=["minimax"]) == ["groq"]


def test_an_endpoint_is_a_quantization_a_region_or_a_word_of_the_models_name() -> None:
    assert left(only=["deepinfra/fp8"]) == ["deepinfra"]
    assert left(only=["deepinfra/bf16"]) == []
    assert left(only=["google-vertex/europe"]) == ["vertex"]
    assert left(only=["google-vertex/us"]) == []
    assert left(only=["together/turbo"]) == ["together"]


def test_what_may_be_meant_is_ignored_but_not_chosen() -> None:
    assert left(only=["groq/fp8"]) == []  # nobody said what groq's is
    assert left(ignore=["groq/fp8"]) == ["together", "deepinfra", "vertex"]
    assert left(ignore=["deepinfra/bf16"]) == ["groq", "together", "deepinfra", "vertex"]


def test_the_order_comes_first_and_the_others_may_follow() -> None:
    result = chosen(order=["deepinfra", "nobody", "groq"])

    assert result.order == (DEEPINFRA.name, GROQ.name)
    assert [each.provider for each in result.deployments] == ["deepinfra", "groq", "together", "vertex"]
    assert result.race.mode is Mode.SINGLE
    assert result.excluded == {}


def test_without_fallbacks_nobody_follows() -> None:
    result = chosen(order=["deepinfra"], allow_fallbacks=False)

    assert [each.provider for each in result.deployments] == ["deepinfra"]
    assert "fallbacks are not allowed" in result.excluded[GROQ.name]
    assert result.failover


def test_without_fallbacks_and_an_order_the_best_answers_or_nobody() -> None:
    result = chosen(allow_fallbacks=False)

    assert len(result.deployments) == len(ALL)
    assert result.race.mode is Mode.SINGLE
    assert not result.failover


def test_whoever_is_not_known_to_keep_nothing_is_shown_nothing() -> None:
    assert left(zdr=True) == ["groq", "deepinfra"]
    assert left(data_collection="deny") == ["groq", "deepinfra"]
    assert left(data_collection="allow", zdr=False) == ["groq", "together", "deepinfra", "vertex"]


def test_quantizations_are_compared_whatever_their_case_and_unknown_is_one_of_them() -> None:
    assert left(quantizations=["fp8"]) == ["together", "deepinfra"]
    assert left(quantizations=["unknown"]) == ["groq", "vertex"]


def test_what_the_operator_requires_is_compared_as_what_a_request_asks_for() -> None:
    required = DataPolicy(quantizations=("FP8",))

    assert [each.provider for each in ALL if policy_violation(each, required) is None] == ["together", "deepinfra"]


def test_nobody_is_dearer_than_the_most_that_is_paid() -> None:
    result = chosen(max_price={"prompt": 0.7, "completion": 1})

    assert [each.provider for each in result.deployments] == ["groq"]
    assert (
        result.excluded[TOGETHER.name]
        == "costs $0.9 per million prompt tokens, more than provider.max_price.prompt 0.7"
    )
    assert "no known price" in result.excluded[VERTEX.name]


def test_required_parameters_are_left_out_by_nobody() -> None:
    lax = deployment("groq/x", drop_params=True)

    assert [each.drop_params for each in chosen((lax,), require_parameters=True).deployments] == [False]
    assert [each.drop_params for each in chosen((lax,)).deployments] == [True]


def test_wishes_about_speed_change_the_race_but_not_what_it_may_cost() -> None:
    configured = RaceSettings(budget=0.1, usd_per_day=5)
    race = chosen(race=configured, sort="throughput", preferred_min_throughput=50).race

    assert (race.objective, race.min_tok_s) == (Objective.COMPLETION, 50)
    assert (race.budget, race.usd_per_day) == (0.1, 5)
    assert chosen(race=configured, zdr=True).race is configured


def test_a_sort_order_holds_no_first_token_back() -> None:
    written = RaceSettings(objective=Objective.READING)

    assert chosen(race=written, preferred_min_throughput=50).race.holds(streamed=True)
    assert not chosen(race=written, sort="throughput").race.holds(streamed=True)
    assert chosen(race=RaceSettings(hold=True), sort="throughput").race.holds(streamed=True)


def test_who_is_left_alone_does_not_race_itself() -> None:
    wide = RaceSettings(mode=Mode.RACE, width=3)

    assert chosen(race=wide, only=["groq"]).race.width == 1
    assert chosen(race=wide, zdr=True).race.width == 2
    assert chosen((GROQ,), race=wide).race.width == 3  # the operator's own choice


def test_the_cheapest_is_sought_within_a_time_to_first_token() -> None:
    assert chosen(sort="price").race.ttft_ms == 30_000
    assert chosen(sort="price", preferred_max_latency=2).race.ttft_ms == 2000
    assert chosen(race=RaceSettings(ttft_ms=900), sort="price").race.ttft_ms == 900


def test_no_price_means_no_cheapest() -> None:
    with pytest.raises(InvalidRequest, match="no price of this model is known"):
        chosen((VERTEX,), sort="price")


def fastest(models: str, client: Client | None, race: RaceSettings | None = None) -> RaceSettings:
    model = Model("m", {each.name: each for each in ALL}, race or RaceSettings())
    return preferred(read(model=models, fastest_response=True), model, ALL, client).race


def test_the_fastest_of_a_list_is_a_race_of_all_of_it_within_what_the_key_may_start() -> None:
    asked = fastest("a/x,b/y,c/z", Client())

    assert (asked.mode, asked.width) == (Mode.RACE, 3)
    assert fastest("a/x,b/y,c/z", Client(max_width=2)).width == 2
    assert fastest("a/x,b/y,c/z", None, RaceSettings(width=1)).width == 1
    assert read(model="a/x,b/y", fastest_response=True).models == ("a/x,b/y",)


def test_a_key_that_may_not_say_how_it_is_raced_may_still_narrow_who_answers() -> None:
    kept = Client(override=False)

    assert [each.provider for each in chosen(client=kept, only=["groq"]).deployments] == ["groq"]
    with pytest.raises(Forbidden, match="may not set how its calls are raced"):
        chosen(client=kept, sort="latency")


def test_what_names_openrouter_itself_is_openrouters_affair() -> None:
    there = deployment("openrouter/meta/llama")
    adhoc = Model("openrouter/meta/llama", {there.name: there}, RaceSettings(), adhoc=True)

    assert is_passed_on(adhoc)
    assert not is_passed_on(Model("m", {there.name: there}, RaceSettings()))
    assert not is_passed_on(Model("x", {there.name: there, GROQ.name: GROQ}, RaceSettings(), adhoc=True))


def test_endless_lists_are_refused() -> None:
    assert len(read(models=[str(number) for number in range(MOST_MODELS)]).models) == MOST_MODELS
    with pytest.raises(InvalidRequest, match=f"'models' must hold at most {MOST_MODELS} names"):
        read(models=[str(number) for number in range(MOST_MODELS + 1)])
    for name in ("order", "only", "ignore", "regions", "quantizations"):
        for endless in (["a"] * (MOST_SLUGS + 1), ["a" * (LONGEST_SLUG + 1)]):
            with pytest.raises(InvalidRequest, match=f"'provider.{name}' must hold at most {MOST_SLUGS} names of at"):
                read(provider={name: endless})
