"""Conversations that a vendor has compacted, or is to compact, at a model of another: left out, or said why not."""

from typing import Any

import pytest

from tests.app.gateway.apis.test_demands_everywhere import at
from tests.app.gateway.apis.test_plain_models import MESSAGES, RESPONSES, SCRIPTS, TURN
from tests.app.gateway.running_gateway import MODEL, Serve

SEALED = {"type": "compaction", "encrypted_content": "sealed"}
COMPACT = f"{RESPONSES}/compact"
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (COMPACT, {"input": TURN}, "only: ask it for a response that sums up the conversation"),
    (RESPONSES, {"input": [SEALED, *TURN]}, "only the vendor that compacted the conversation can read this summary"),
    (RESPONSES, {"input": [*TURN, {"type": "compaction_trigger"}]}, "ask for a response that sums it up"),
]


@pytest.mark.parametrize("api", ["chat", "messages", "gemini"])
@pytest.mark.parametrize(("path", "asked", "words"), REFUSED)
async def test_what_only_its_maker_can_do_is_refused_with_what_to_ask_for_instead(
    serve: Serve, path: str, asked: dict[str, Any], words: str, api: str
) -> None:
    async with serve(alpha=SCRIPTS[api], config=at(api)) as running:
        async with running.post({"model": MODEL, **asked}, path=path) as response:
            assert (response.status, words in await response.text()) == (400, True)
        assert running["alpha"].received == []


@pytest.mark.parametrize("api", ["chat", "responses", "gemini"])
async def test_so_is_claudes(serve: Serve, api: str) -> None:
    asked = {"model": MODEL, "messages": TURN, "max_tokens": 99, "compaction": {"type": "summarize"}}
    async with serve(alpha=SCRIPTS[api], config=at(api)) as running, running.post(asked, path=MESSAGES) as response:
        assert (response.status, "ask for an answer that sums it up" in await response.text()) == (400, True)


@pytest.mark.parametrize("api", ["chat", "messages", "gemini"])
async def test_where_the_users_words_are_beside_a_sealed_summary_it_is_left_out_and_told(
    serve: Serve, api: str
) -> None:
    asked = {"model": MODEL, "input": [*TURN, SEALED, *TURN]}
    async with serve(alpha=SCRIPTS[api], config=at(api)) as running, running.post(asked, path=RESPONSES) as response:
        assert (response.status, response.headers["x-holeshot-dropped"]) == (200, "input[1]")


async def test_its_maker_is_asked_where_there_is_one(serve: Serve) -> None:
    asked = {"model": MODEL, "input": [SEALED, *TURN]}
    async with serve(alpha=None, beta=SCRIPTS["responses"], config=at("chat", "responses")) as running:
        async with running.post(asked, path=RESPONSES) as response:
            assert (response.status, response.headers["x-holeshot-provider"]) == (200, "beta")
        assert running["beta"].received[0].body["input"][0] == SEALED
