"""Conversations that a vendor has compacted, or is to compact, at a model of another: summed up, or said why not."""

import base64
import json
from typing import Any

import pytest

from providers import events
from providers.dialects import RESPONSES as DIALECT
from providers.simulator import Raw, Status
from tests.app.gateway.apis.test_demands_everywhere import at
from tests.app.gateway.apis.test_plain_models import MESSAGES, RESPONSES, SCRIPTS, TURN
from tests.app.gateway.responses.test_responses_socket import connected
from tests.app.gateway.rules.asking import named
from tests.app.gateway.running_gateway import MODEL, Serve

MARK = "holeshot-summary-v1:"  # of our own summaries, before what is in base64
SEALED = {"type": "compaction", "encrypted_content": "sealed"}
TRIGGER = {"type": "compaction_trigger"}
COMPACT = f"{RESPONSES}/compact"
OTHERS = ["chat", "messages", "gemini"]
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}, "strict": False}
ASKED: dict[str, Any] = {"model": MODEL, "input": [*TURN, TRIGGER], "tools": [TOOL], "store": False}


def summary_of(item: dict[str, Any]) -> str:
    assert item["type"] == "compaction"
    return base64.b64decode(item["encrypted_content"].split(":")[1]).decode()


def whole_of(body: bytes, *, stream: bool) -> dict[str, Any]:
    if not stream:
        return json.loads(body)  # type: ignore[no-any-return] # an object
    told = [json.loads(each.data) for each in events(body)]
    done = [each["item"] for each in told if each["type"] == "response.output_item.done"]
    assert len(done) == 1  # Codex takes no other number of them: core/src/compact_remote_v2.rs
    assert [each["sequence_number"] for each in told] == list(range(len(told)))
    gathering = DIALECT.answers.gathering()
    for each in events(body):
        gathering.take(DIALECT.answers.read_event(each.data, ()))
    whole: dict[str, Any] = json.loads(gathering.body())
    assert whole["output"] == done
    return whole


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("api", OTHERS)
async def test_another_vendors_model_sums_up_and_whoever_answers_next_reads_it(
    serve: Serve, api: str, stream: bool
) -> None:
    async with serve(alpha=SCRIPTS[api], config=at(api)) as running:
        async with running.post({**ASKED, "stream": stream}, path=RESPONSES) as response:
            assert response.status == 200, await response.text()
            assert response.headers["x-holeshot-dropped"].split(", ")[0] == f"input[{len(TURN)}]"
            whole = whole_of(await response.read(), stream=stream)
        sent = json.dumps(running["alpha"].received[0].body)
        assert "about to be replaced by a summary" in sent
        assert "compaction" not in sent
    [item] = whole["output"]
    assert summary_of(item).startswith("Hello")
    assert whole["status"] == "completed"
    for other in (*OTHERS, "responses"):
        async with serve(alpha=SCRIPTS[other], config=at(other)) as running:
            asked = {"model": MODEL, "input": [*TURN, item, *TURN], "store": False}
            async with running.post(asked, path=RESPONSES) as response:
                assert (response.status, response.headers.get("x-holeshot-dropped")) == (200, None)
            sent = json.dumps(running["alpha"].received[0].body)
            assert "in place of it. Go on from here:\\n\\nHello" in sent
            assert "compaction" not in sent


@pytest.mark.parametrize("api", OTHERS)
async def test_what_is_compacted_has_what_the_user_has_said_and_the_summary(serve: Serve, api: str) -> None:
    said = [*TURN, {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "So?"}]
    compacted: dict[str, Any] = {}
    async with serve(alpha=SCRIPTS[api], config=at(api)) as running:
        for model, given, users in ((MODEL, said, ["Hi", "So?"]), ("alpha/m", "Hi", ["Hi"])):
            asked = {"model": model, "input": given, "instructions": "Be brief.", "tools": [TOOL]}
            async with running.post(asked, path=COMPACT) as response:
                assert response.status == 200, await response.text()
                assert "x-holeshot-dropped" in response.headers
                compacted = await response.json()
            assert compacted["object"] == "response.compaction"
            assert [item["content"] for item in compacted["output"][:-1]] == users
            assert summary_of(compacted["output"][-1]).startswith("Hello")
            assert compacted["usage"]["output_tokens"] > 0
        assert "Be brief." in json.dumps(running["alpha"].received[0].body)
        asked = {"model": MODEL, "input": [*compacted["output"], *TURN]}
        async with running.post(asked, path=RESPONSES) as response:
            assert response.status == 200, await response.text()


@pytest.mark.parametrize("path", [RESPONSES, COMPACT])
async def test_a_summary_fails_over_as_any_answer_does(serve: Serve, path: str) -> None:
    asked = ASKED if path == RESPONSES else {**ASKED, "input": TURN}
    async with serve(alpha=[Status(503)], beta=SCRIPTS["messages"], config=at("chat", "messages")) as running:
        running.prefer("alpha", "beta")
        async with running.post(asked, path=path) as response:
            assert (response.status, response.headers["x-holeshot-provider"]) == (200, "beta")
            assert summary_of((await response.json())["output"][-1]).startswith("Hello")


async def test_who_compacts_by_itself_comes_first_and_its_item_passes_as_it_is(serve: Serve) -> None:
    own = {"type": "compaction", "id": "cmp_1", "encrypted_content": "theirs"}
    told = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed"}
    done = {"type": "response.output_item.done", "output_index": 0, "item": own, "sequence_number": 0}
    ended = {"type": "response.completed", "response": {**told, "output": [own], "usage": None}, "sequence_number": 1}
    answer = [Raw(named(done, ended), token=True)]
    config = at("chat", "responses")
    config["models"][MODEL]["race"] = {"mode": "single"}
    async with serve(alpha=SCRIPTS["chat"], beta=answer, config=config) as running:
        for stream in (True, False):
            async with running.post({**ASKED, "stream": stream}, path=RESPONSES) as response:
                assert (response.status, response.headers["x-holeshot-provider"]) == (200, "beta")
                assert whole_of(await response.read(), stream=stream)["output"] == [own]
        assert running["beta"].received[0].body["input"][-1] == TRIGGER
        async with running.post({"model": MODEL, "input": TURN}, path=COMPACT) as response:
            assert (response.status, response.headers["x-holeshot-provider"]) == (200, "beta")
            assert (await response.json())["output"] == [{"type": "message", **TURN[0]}, own]


@pytest.mark.parametrize("api", OTHERS)
async def test_a_summary_that_only_its_maker_can_read_is_refused_with_what_to_do_where_it_is_all(
    serve: Serve, api: str
) -> None:
    async with serve(alpha=SCRIPTS[api], config=at(api)) as running:
        for content in ("sealed", f"{MARK}é", f"{MARK}//4=", f"{MARK}YQ", f"a{MARK}YQ=="):
            sealed = {**SEALED, "encrypted_content": content}
            async with running.post({"model": MODEL, "input": [sealed, *TURN]}, path=RESPONSES) as response:
                words = "only the vendor that compacted the conversation can read this summary"
                assert (response.status, words in await response.text()) == (400, True)
        assert running["alpha"].received == []


@pytest.mark.parametrize("api", ["chat", "responses", "gemini"])
async def test_claudes_own_request_of_a_summary_is_refused_with_what_to_ask_for_instead(serve: Serve, api: str) -> None:
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


async def test_what_asked_for_a_summary_in_an_earlier_turn_is_not_sent_to_who_compacts(serve: Serve) -> None:
    async with serve(alpha=SCRIPTS["responses"], config=at("responses")) as running:
        said = [*TURN, TRIGGER, SEALED, *TURN]  # OpenAI takes it as the last item alone
        for given, sent in ((said, [*TURN, SEALED, *TURN]), ([*said, TRIGGER], [*TURN, SEALED, *TURN, TRIGGER])):
            async with running.post({"model": MODEL, "input": given, "store": False}, path=RESPONSES) as response:
                assert response.status == 200, await response.text()
            assert running["alpha"].received[-1].body["input"] == sent


async def test_on_a_websocket_a_turn_sums_up_what_was_said_before_it(serve: Serve) -> None:
    config = at("chat")
    config["models"][MODEL]["race"] = {"mode": "single"}
    async with serve(alpha=SCRIPTS["chat"], config=config) as running, connected(running) as client:
        first = await client.turn("Hi, I am Ann.")
        summed = await client.turn([TRIGGER], previous_response_id=first["id"])
        [item] = summed["output"]
        assert summary_of(item).startswith("Hello")
        await client.turn([item, *TURN])
        await client.turn("And?", previous_response_id=summed["id"])
        asked = [json.dumps(each.body) for each in running["alpha"].received]
        assert "I am Ann." in asked[1]
        assert "I am Ann." not in asked[2]
        assert all("Go on from here" in each for each in asked[2:])
