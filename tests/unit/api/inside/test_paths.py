"""Which path is proposed in place of one that is not there."""

import sys

import pytest

from gateway.admin import ROUTES as OPERATORS
from gateway.api import ROUTES as CLIENTS
from gateway.api.routes import is_not_offered, nearest_path
from gateway.app.routes import ROUTES

KNOWN = (
    *("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/v1/models", "/v2/rerank"),
    *("/v1/moderations", "/v1/embeddings"),
)


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/v1/chat/completions/", "/v1/chat/completions"),
        ("/chat/completions", "/v1/chat/completions"),
        ("//v1//chat//completions", "/v1/chat/completions"),
        ("/v1/v1/messages", "/v1/messages"),
        ("/openai/v1/chat/completions", "/v1/chat/completions"),
        ("/completions", "/v1/completions"),
        ("/v3/responses", "/v1/responses"),
        ("/v1/chat/completion", "/v1/chat/completions"),
        ("/v1/model", "/v1/models"),
        ("/rerank", "/v2/rerank"),
        ("/", None),
        ("/v1", None),
        ("/favicon.ico", None),
        ("/nowhere", None),
        ("/v1/conversations", None),
        ("/v1/embeddings/batch", None),
    ],
)
def test_the_path_that_was_meant_is_found(path: str, meant: str | None) -> None:
    assert nearest_path(path, KNOWN) == meant


@pytest.mark.parametrize(
    "path",
    ["/v1" * 2_700, "/v1" * 2_000 + "/chat/completions", "/a" * 4_000],
    ids=["versions", "a known one", "words"],
)
def test_a_path_of_thousands_of_words_is_not_compared_with_any(path: str) -> None:
    looked = 0

    def count(*_: object) -> None:
        nonlocal looked
        looked += 1

    sys.setprofile(count)  # of a path that fits into a request, each beginning would be compared: millions of steps
    try:
        meant = nearest_path(path, KNOWN)
    finally:
        sys.setprofile(None)
    assert meant is None
    assert looked < 100


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("/v1/conversations", False),
        ("/v1/responses/compact", False),
        ("/v1/live/sessions", True),
        ("/v1/agents/a_1", True),
        ("/v1/vaults", True),
        ("/v1/messages/batches", True),
        ("/v1beta/agents", True),
        ("/v1beta/cachedContents/c_1", True),
        ("/v1beta/models", False),
        ("/v1/audio/voices", True),
        ("/v1/audio/speech", False),
        ("/v1/projects/p_1/api_keys", True),
        ("/v1beta1/projects/p/locations/l/endpoints/e:predict", True),
        ("/v1/deployments/gpt-4o/chat/completions", False),  # "did you mean" helps more
        ("/assistants", True),
        ("/v1/decisions", False),
        ("/v1/webhook_endpoints/we_1", True),
        ("/v1/responses/resp_1", False),
        ("/v1/filesystem", False),
        ("/v1/nowhere", False),
    ],
)
def test_apis_that_only_others_have_are_known(path: str, *, is_one: bool) -> None:
    assert is_not_offered(path) is is_one


def test_routes_of_clients_come_first_and_none_is_also_one_of_operators() -> None:
    clients, operators, both = (
        [(route.method, route.path) for route in routes] for routes in (CLIENTS, OPERATORS, ROUTES)
    )
    assert both == [*clients, *operators]
    assert len(set(both)) == len(both)
    assert not [path for _, path in clients if path.startswith(("/admin", "/api", "/health"))]
