"""Which path is proposed in place of one that is not there."""

import pytest

from gateway.ingress.paths import nearest_path

KNOWN = ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/v1/models", "/v2/rerank")


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
    ],
)
def test_the_path_that_was_meant_is_found(path: str, meant: str | None) -> None:
    assert nearest_path(path, KNOWN) == meant
