"""Cohere's own SDK for Python: rankings, in both versions of its API."""

from importlib import import_module
from typing import Any

from tests.clients.case import Feature, Suite, Target, equal, expect, raised

# It is installed in an environment of its own.
cohere: Any = import_module("cohere")
errors: Any = import_module("cohere.errors")
suite = Suite("cohere")

ASKED: Any = {"query": "a fast horse", "documents": ["a cow", "fast horse", "no"], "top_n": 2}


def both(target: Target, key: str | None = None) -> list[Any]:
    """Return the client of each version."""
    return [kind(api_key=key or target.key, base_url=target.url) for kind in (cohere.Client, cohere.ClientV2)]


@suite.case(Feature.OTHERS)
def documents_are_ranked_in_both_versions(target: Target) -> None:
    for client in both(target):
        answer = client.rerank(model=target.models["rerank"], **ASKED)
        equal([item.index for item in answer.results], [1, 0])
        expect(answer.results[0].relevance_score > answer.results[1].relevance_score, answer)
        equal(answer.meta.billed_units.search_units, 1)


@suite.case(Feature.OTHERS)
def a_ranking_is_raced(target: Target) -> None:
    for client in both(target):
        answer = client.with_raw_response.rerank(model=target.models["rerank"], **ASKED)
        equal([item.index for item in answer.data.results], [1, 0])
        if target.gateway:
            equal(answer.headers["x-holeshot-launched"], "2")


@suite.case(Feature.OTHERS)
def a_wrong_key_is_an_authentication_error(target: Target) -> None:
    for client in both(target, target.wrong_key):
        error = raised(errors.UnauthorizedError, lambda: client.rerank(model=target.models["rerank"], **ASKED))  # noqa: B023 - called at once
        equal(error.status_code, 401)


@suite.case(Feature.OTHERS)
def an_unknown_model_is_not_found(target: Target) -> None:
    for client in both(target):
        error = raised(errors.NotFoundError, lambda: client.rerank(model="missing-model", **ASKED))  # noqa: B023 - called at once
        equal(error.status_code, 404)


if __name__ == "__main__":
    suite.main()
