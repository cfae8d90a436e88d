"""What a configuration says but can hardly mean: refused where it cannot be, otherwise only noted."""

from collections.abc import Callable

import pytest

from gateway.fleet.resolver import fleet_limits, limits
from gateway.settings import Settings, doubtful

Load = Callable[..., Settings]
Problems = Callable[..., list[str]]


def model(*deployments: str, more: str = "") -> str:
    rows = "".join(f"      - {each}\n" for each in deployments)
    return f"models:\n  m:\n{more}    deployments:\n{rows}"


def test_an_api_that_litellm_does_not_ask_for_is_refused(problems: Problems) -> None:
    text = "providers:\n  anthropic: { api_key: k, apis: [chat, rerank, images] }\n"
    text += model("{ deployment: anthropic/x, apis: [responses] }", "{ deployment: anthropic/y, apis: [embeddings] }")

    provider, deployment = problems(text)
    assert provider.startswith(
        "gateway.yaml:2: providers.anthropic.apis: "
        "providers of kind litellm support only chat and embeddings, not rerank, images:"
    )
    assert deployment.startswith("gateway.yaml:6: models.m.deployments[0].apis: ")
    assert "not responses" in deployment


def test_whoever_speaks_http_may_have_any_api(loaded: Load) -> None:
    settings = loaded("providers: { ollama: { apis: [messages, rerank, images] } }\n")
    assert settings.providers["ollama"].apis == ("messages", "rerank", "images")


@pytest.mark.parametrize(
    ("deployments", "doubt"),
    [
        (["{ deployment: ollama/x, enabled: false }"], "all its deployments are disabled, so its calls fail"),
        (["{ deployment: ollama/x, canary: 0.2 }"], "ollama/x is the only enabled deployment, and a canary"),
        (
            ["{ deployment: ollama/x, canary: 0.2 }", "{ deployment: ollama/y, enabled: false }"],
            "ollama/x is the only enabled deployment, and a canary",
        ),
        (
            ["{ deployment: ollama/x, canary: 0.2 }", "{ deployment: ollama/y, canary: 0.2 }"],
            "all its deployments are canaries, but their shares are only 40% in all",
        ),
    ],
)
def test_a_model_that_hardly_anybody_serves_is_noted(loaded: Load, deployments: list[str], doubt: str) -> None:
    (said,) = doubtful(loaded(model(*deployments)))
    assert said.startswith(f"model 'm': {doubt}")


def test_a_disabled_model_with_fallbacks_is_answered_by_them(loaded: Load) -> None:
    text = model("{ deployment: ollama/x, enabled: false }", more="    fallbacks: [n]\n")
    (said,) = doubtful(loaded(text + "  n: { deployments: [ollama/y], fallbacks: [m] }\n"))

    assert said == "model 'm': all its deployments are disabled, so its fallbacks answer"


@pytest.mark.parametrize(
    "deployments",
    [
        ["{ deployment: ollama/x, canary: 0.5 }", "ollama/y"],
        ["{ deployment: ollama/x, canary: 0.5 }", "{ deployment: ollama/y, canary: 0.5 }"],
        ["ollama/x", "{ deployment: ollama/y, enabled: false }"],
    ],
)
def test_canaries_with_somebody_for_the_other_calls_are_meant(loaded: Load, deployments: list[str]) -> None:
    assert list(doubtful(loaded(model(*deployments)))) == []


def test_the_canary_of_a_disabled_deployment_is_given_nothing(loaded: Load) -> None:
    canaries = [f"{{ deployment: ollama/{name}, canary: 0.7, enabled: {on} }}" for name, on in (("x", 1), ("y", 0))]
    assert len(loaded(model(*canaries, "ollama/z")).models["m"].deployments) == len([*canaries, "ollama/z"])


@pytest.mark.parametrize(
    ("own", "noted"),
    [("", 120), ("timeouts: { ttft_timeout_s: 20 }, ", 20), ("timeouts: { ttft_timeout_s: 200 }, ", None)],
)
def test_comments_that_would_begin_after_the_first_token_is_given_up_are_noted(
    loaded: Load, own: str, noted: int | None
) -> None:
    said = list(doubtful(loaded(model(f"{{ {own}deployment: ollama/x }}", more="    keepalive_s: 150\n"))))

    assert [
        f"keepalive_s 150 is longer than the limit for a first token (ttft_timeout_s {noted}):" in each for each in said
    ] == ([] if noted is None else [True])


def test_comments_are_sent_while_anybody_may_still_begin(loaded: Load) -> None:
    quick = "{ deployment: ollama/x, timeouts: { ttft_timeout_s: 5 } }"
    assert list(doubtful(loaded(model(quick, "ollama/y", more="    keepalive_s: 15\n")))) == []
    (said,) = doubtful(loaded(model(quick, more="    keepalive_s: 15\n")))
    assert "ttft_timeout_s 5" in said


@pytest.mark.parametrize(
    ("deployment", "noted"),
    [
        ("ollama/x", True),
        ("ollama/claude-sonnet-5", False),
        ("ollama/gpt-5.6", False),
        ("ollama/gpt-5.5", True),
        ("{ deployment: ollama/x, same_as: claude-opus-5 }", False),
    ],
)
def test_marks_for_models_that_take_none_are_noted(loaded: Load, deployment: str, noted: bool) -> None:
    said = list(doubtful(loaded(model(deployment, more="    cache_marks: auto\n"))))
    assert ["cache_marks does nothing here" in each for each in said] == [True] * noted


SHARED = "redis_url: redis://localhost\ndatabase_url: postgresql://localhost/x\n"


@pytest.mark.parametrize(
    ("workers", "limit", "noted"),
    [
        (1, 8, []),
        (4, 8, ["ollama/x: of max_in_flight 8 each of the 4 workers takes 2, 8 in all"]),
        (4, 11, ["ollama/x: of max_in_flight 11 each of the 4 workers takes 2, 8 in all"]),
        (4, 3, ["ollama/x: max_in_flight 3 is less than workers 4: each worker takes one, so 4 may be in flight"]),
    ],
)
def test_how_workers_share_a_limit_is_noted(loaded: Load, workers: int, limit: int, noted: list[str]) -> None:
    text = f"{SHARED}workers: {workers}\n" + model(f"{{ deployment: ollama/x, max_in_flight: {limit} }}")
    settings = loaded(text)
    assert [each.partition(";")[0] for each in doubtful(settings)] == noted
    assert limits(settings) == {"ollama/x": max(1, limit // workers)}


def test_a_server_that_two_models_limit_apart_has_the_smaller_limit(loaded: Load) -> None:
    more = "  n: { deployments: [{ deployment: ollama/x, max_in_flight: 3 }] }\n  o: { deployments: [ollama/x] }\n"
    settings = loaded(model("{ deployment: ollama/x, max_in_flight: 5 }") + more)
    assert list(doubtful(settings)) == ["ollama/x: m, n, o share its max_in_flight of 3"]
    assert limits(settings) == {"ollama/x": 3}


def test_a_limit_of_all_replicas_needs_redis_and_is_the_largest(loaded: Load) -> None:
    server = "{ deployment: ollama/x, max_in_flight: 5, max_in_flight_fleet: 4 }"
    settings = loaded(SHARED + model(server) + "  n: { deployments: [ollama/x] }\n")
    assert [each for each in doubtful(settings) if "fleet" in each] == [
        "ollama/x: m, n share its max_in_flight_fleet of 4",
        "ollama/x: max_in_flight 5 of one replica is more than max_in_flight_fleet 4 of all: remove it, or set less",
    ]
    assert (limits(settings), fleet_limits(settings)) == ({"ollama/x": 5}, {"ollama/x": 4})
    (said,) = doubtful(loaded(model("{ deployment: ollama/x, max_in_flight_fleet: 4 }")))
    assert said == (
        "ollama/x: max_in_flight_fleet 4 is counted in Redis: set redis_url, as without it each replica may have 4 in"
        " flight"
    )
    assert list(doubtful(loaded(SHARED + model("{ deployment: ollama/x, max_in_flight_fleet: 4 }")))) == []


@pytest.mark.parametrize("place", ["fallback_after: %s", "fallbacks: [{ model: n, fallback_after: %s }]"])
@pytest.mark.parametrize("after", ["0.01", "never"])
def test_a_time_at_which_no_fallback_can_be_asked_is_refused(problems: Problems, place: str, after: str) -> None:
    text = model("ollama/x", more=f"    {place % after}\n") + "  n: { deployments: [ollama/y] }\n"

    (said,) = problems(text)
    assert "fallback_after: must be auto, failure, or at least 0.05 seconds, not " in said
