"""Who asks for fewer tokens than an API writes at least, or for more than fit beside the prompt, gets an answer."""

import json
from typing import Any

import pytest

from providers import events
from providers.simulator import Hang, Raw, Status
from tests.app.gateway.apis.test_dialects import speaking
from tests.app.gateway.refusals.test_refused_fields import ANSWERS, refused
from tests.app.gateway.rules.asking import named
from tests.app.gateway.rules.table import (
    item_call,
    item_text,
    message_end,
    message_start,
    responded,
    response_begun,
    response_call,
    response_end,
    response_text,
    text_block,
)
from tests.app.gateway.running_gateway import MODEL
from tests.app.gateway.shared_gateway import SharedGateways
from tests.support.orders import wrong_order

pytestmark = pytest.mark.asyncio(loop_scope="module")
WORDS = ["Hello", " there", ",", " how", " are", " you", "?"]
USED = {"input_tokens": 7, "output_tokens": 16, "total_tokens": 23}
TOOL = {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}}
HI = [{"role": "user", "content": "Hi"}]
CLIENTS: dict[str, tuple[str, dict[str, Any], str]] = {  # path, body, the name of its limit
    "chat": ("/v1/chat/completions", {"messages": HI, "tools": [{"type": "function", "function": TOOL}]}, "max_tokens"),
    "messages": (
        "/v1/messages",
        {"messages": HI, "tools": [{"name": "f", "input_schema": TOOL["parameters"]}]},
        "max_tokens",
    ),
    "gemini": (
        f"/v1beta/models/{MODEL}",
        {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
        "generationConfig.maxOutputTokens",
    ),
    "responses": ("/v1/responses", {"input": "Hi"}, "max_output_tokens"),
}
LEAST = "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 5 instead."  # OpenAI


async def asked(running: Any, client: str, most: int, *, stream: bool, **more: Any) -> tuple[int, Any, bytes]:
    path, body, field = CLIENTS[client]
    body = {**body, **more}
    path = path.replace(MODEL, MODEL + running.suffix)
    if client == "gemini":
        path += ":streamGenerateContent?alt=sse" if stream else ":generateContent"
        body["generationConfig"] = {"maxOutputTokens": most}
    else:
        body |= {"model": MODEL + running.suffix, "stream": stream, field: most}
        if client == "chat" and stream:
            body["stream_options"] = {"include_usage": True}
    async with running.post(body, path=path) as response:
        return response.status, response.headers, await response.read()


def said_in(client: str, body: bytes, *, stream: bool) -> tuple[str, str, int]:
    """Return text, end and completion tokens."""
    told = [json.loads(each.data) for each in events(body) if each.data != b"[DONE]"] if stream else [json.loads(body)]
    match client:
        case "chat":
            choices = [choice for each in told for choice in each["choices"]]
            text = "".join(each["delta" if stream else "message"].get("content") or "" for each in choices)
            return text, choices[-1]["finish_reason"], told[-1]["usage"]["completion_tokens"]
        case "messages" if stream:
            text = "".join(each["delta"].get("text", "") for each in told if each["type"] == "content_block_delta")
            return text, told[-2]["delta"]["stop_reason"], told[-2]["usage"]["output_tokens"]
        case "messages":
            return told[0]["content"][0]["text"], told[0]["stop_reason"], told[0]["usage"]["output_tokens"]
        case _:
            parts = [part for each in told for part in each["candidates"][0]["content"]["parts"]]
            end = told[-1]["candidates"][0]["finishReason"]
            return (
                "".join(part.get("text", "") for part in parts),
                end,
                told[-1]["usageMetadata"]["candidatesTokenCount"],
            )


def answer(words: list[str], **more: Any) -> Any:
    whole = responded(item_text("".join(words)), usage=USED, **more)
    return Raw(named(response_begun(), *response_text(*words), response_end(whole)), token=True)


def chunk_of(choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}


def said_in_chat(*words: str) -> list[Any]:
    said = [{"role": "assistant", "content": ""}, *({"content": word} for word in words)]
    deltas: list[dict[str, Any]] = [{"delta": delta, "finish_reason": None} for delta in said]
    chunks = [chunk_of([{"index": 0, **each}]) for each in (*deltas, {"delta": {}, "finish_reason": "stop"})]
    usage = chunk_of([]) | {"usage": {"prompt_tokens": 7, "completion_tokens": 16, "total_tokens": 23}}
    events_said = b"".join(b"data: %b\n\n" % json.dumps(each).encode() for each in (*chunks, usage))
    return [Raw(events_said + b"data: [DONE]\n\n", token=True)]


def at_least_16(given: Any) -> Any:
    return lambda body: refused(LEAST) if body.get("max_output_tokens", 99) < 16 else [given]


@pytest.mark.parametrize("raced", [False, True], ids=["alone", "raced"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("client", ["chat", "messages", "gemini"])
async def test_sixteen_are_asked_and_no_more_than_was_asked_for_is_given(
    shared: SharedGateways, client: str, stream: bool, raced: bool
) -> None:
    config: dict[str, Any] = {"providers": {"alpha": speaking("responses")}}
    scripts: dict[str, Any] = {"alpha": None}
    if raced:
        scripts["beta"] = [Hang()]
    async with shared.row(**scripts, config=config) as running:
        running["alpha"].answers = at_least_16(answer(WORDS))
        status, headers, body = await asked(running, client, 5, stream=stream)
        assert status == 200, body
        assert [each.body["max_output_tokens"] for each in running.received("alpha")] == [16]
        assert headers["x-holeshot-dropped"] == CLIENTS[client][2]
        end = {"chat": "length", "messages": "max_tokens", "gemini": "MAX_TOKENS"}[client]
        assert said_in(client, body, stream=stream) == ("Hello there, how are", end, 16)
        if stream:
            assert wrong_order(client, body) is None
        [row, *_] = await running.rows(
            f"select completion_tokens from attempts where provider = 'alpha{running.suffix}'"
        )
        assert row == {"completion_tokens": 16}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("client", ["chat", "messages", "gemini"])
async def test_an_answer_that_is_short_enough_ends_as_it_did(shared: SharedGateways, client: str, stream: bool) -> None:
    async with shared.row(alpha=None, config={"providers": {"alpha": speaking("responses")}}) as running:
        running["alpha"].answers = at_least_16(answer(WORDS[:2]))
        status, _, body = await asked(running, client, 2, stream=stream)
    end = {"chat": "stop", "messages": "end_turn", "gemini": "STOP"}[client]
    assert (status, said_in(client, body, stream=stream)[:2]) == (200, ("Hello there", end))


@pytest.mark.parametrize("client", ["chat", "messages"])
async def test_a_call_is_cut_at_the_limit(shared: SharedGateways, client: str) -> None:
    written = '{"x":"a long text of many words"}'
    pieces = ['{"x":"', "a long", " text of", ' many words"}']
    whole = responded(item_call(0, "a", "f", written), usage=USED)
    script = Raw(
        named(response_begun(), *response_call(0, "a", "f", *pieces, whole=written), response_end(whole)), token=True
    )
    async with shared.row(alpha=None, config={"providers": {"alpha": speaking("responses")}}) as running:
        running["alpha"].answers = at_least_16(script)
        status, _, body = await asked(running, client, 8, stream=True)
    assert status == 200
    assert b"a long" in body
    assert b"words" not in body
    assert (b'"length"' if client == "chat" else b'"max_tokens"') in body


async def test_thoughts_count(shared: SharedGateways) -> None:
    thought = [
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {"type": "reasoning", "id": "rs", "summary": []},
        },
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0, "delta": "hm " * 20},
    ]
    cut = responded(usage=USED, status="incomplete", why="max_output_tokens")
    script = Raw(named(response_begun(), *thought, response_end(cut)), token=True)
    async with shared.row(alpha=None, config={"providers": {"alpha": speaking("responses")}}) as running:
        running["alpha"].answers = at_least_16(script)
        status, _, body = await asked(running, "chat", 5, stream=True)
    assert status == 200
    assert body.count(b"hm") == 5
    assert b'"length"' in body


NO_ROOM = (
    "Could not finish the message because max_tokens or model output limit was reached. "
    "Please try again with higher max_tokens."  # GPT-5 in chat
)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("client", [*CLIENTS])
async def test_a_limit_that_leaves_no_room_for_text_ends_an_empty_answer(
    shared: SharedGateways, client: str, stream: bool
) -> None:
    async with shared.row(alpha=None) as running:
        running["alpha"].answers = lambda _: refused(NO_ROOM)
        status, headers, body = await asked(running, client, 1, stream=stream)
        assert (status, NO_ROOM[:20].encode() in body) == (200, False), body
        end = {"chat": "length", "messages": "max_tokens", "gemini": "MAX_TOKENS", "responses": "max_output_tokens"}
        assert f'"{end[client]}"'.encode() in body
        assert "x-holeshot-dropped" not in headers
        assert len(running.received("alpha")) == 1
        [attempt] = await running.rows(
            f"select status_code, outcome, finish_reason from attempts where provider = 'alpha{running.suffix}'"
        )
        assert attempt == {"status_code": 200, "outcome": "won", "finish_reason": end[client]}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_another_deployment_that_has_room_for_text_wins(shared: SharedGateways, stream: bool) -> None:
    async with shared.row(alpha=None, beta=None) as running:
        running["alpha"].answers = lambda _: refused(NO_ROOM)
        running["beta"].answers = lambda _: said_in_chat("Hello")
        status, _, body = await asked(running, "chat", 1, stream=stream)
        assert (status, len(running.received("alpha"))) == (200, 1)
        assert said_in("chat", body, stream=stream)[:2] == ("Hello", "stop")


# Of a server that is asked in its client's own API: it may write fewer, so its refusal has to tell.

OWN_LEAST = {"responses": LEAST, "messages": "max_tokens: Input should be greater than or equal to 16"}
OWN_LIMIT = {"responses": "max_output_tokens", "messages": "max_tokens"}


def in_messages(*words: str) -> Any:
    return Raw(
        named(message_start(), *text_block(0, *words), *message_end("end_turn", {"output_tokens": 16})),
        token=True,
    )


def of_own(api: str, words: list[str], least: int = 16) -> Any:
    given = answer(words) if api == "responses" else in_messages(*words)
    return lambda body: refused(OWN_LEAST[api]) if body.get(OWN_LIMIT[api], 99) < least else [given]


def text_in(api: str, body: bytes, *, stream: bool) -> tuple[str, str]:
    """Return the text and the end of an answer in this API."""
    if api == "messages":
        return said_in(api, body, stream=stream)[:2]
    told = [json.loads(each.data) for each in events(body)] if stream else [{"response": json.loads(body)}]
    whole = told[-1]["response"]
    ends = whole["incomplete_details"]["reason"] if whole["status"] == "incomplete" else whole["status"]
    return whole["output"][0]["content"][0]["text"], ends


@pytest.mark.parametrize("raced", [False, True], ids=["alone", "raced"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("api", OWN_LEAST)
async def test_in_its_own_api_a_least_is_learnt_from_the_refusal(
    shared: SharedGateways, api: str, stream: bool, raced: bool
) -> None:
    config: dict[str, Any] = {"providers": {name: speaking(api) for name in ("alpha", "beta")[: 1 + raced]}}
    scripts: dict[str, Any] = {"alpha": None} | ({"beta": [Hang()]} if raced else {})
    async with shared.row(**scripts, config=config) as running:
        running["alpha"].answers = of_own(api, WORDS)
        for _ in range(3):
            status, headers, body = await asked(running, api, 5, stream=stream)
            assert (status, headers.get("x-holeshot-dropped")) == (200, CLIENTS[api][2]), body
            end = {"messages": "max_tokens", "responses": "max_output_tokens"}[api]
            assert text_in(api, body, stream=stream) == ("Hello there, how are", end)
            if stream:
                assert wrong_order(api, body) is None
        assert [each.body[OWN_LIMIT[api]] for each in running.received("alpha")] == [5, 16, 16, 16]
        status, headers, body = await asked(running, api, 40, stream=stream)
        assert (status, text_in(api, body, stream=stream)[0]) == (200, "".join(WORDS))
        assert "x-holeshot-dropped" not in headers


@pytest.mark.parametrize("client", ["chat", "gemini"])
async def test_a_least_that_a_server_of_messages_states_is_learnt_for_others(
    shared: SharedGateways, client: str
) -> None:
    async with shared.row(alpha=None, config={"providers": {"alpha": speaking("messages")}}) as running:
        running["alpha"].answers = of_own("messages", WORDS)
        for _ in range(2):
            status, headers, body = await asked(running, client, 5, stream=True)
            assert (status, headers["x-holeshot-dropped"]) == (200, CLIENTS[client][2]), body
            assert said_in(client, body, stream=True)[0] == "Hello there, how are"


@pytest.mark.parametrize(
    ("api", "more"),
    [
        ("responses", {"store": True}),
        ("responses", {"tools": [{"type": "web_search"}]}),
        ("messages", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
    ],
)
async def test_what_cannot_be_shortened_is_refused_as_by_its_vendor(
    shared: SharedGateways, api: str, more: dict[str, Any]
) -> None:
    """What its vendor keeps is the whole of it, and what its tools have found has no place in a shortened answer."""
    async with shared.row(alpha=None, config={"providers": {"alpha": speaking(api)}}) as running:
        running["alpha"].answers = of_own(api, WORDS)
        for number in (1, 2):
            status, _, body = await asked(running, api, 5, stream=False, **more)
            assert (status, [each.body[OWN_LIMIT[api]] for each in running.received("alpha")]) == (400, [5] * number)
            assert b"16" in body


@pytest.mark.parametrize("most", [16, 17, 1000])
async def test_who_asks_for_sixteen_or_more_gets_them(shared: SharedGateways, most: int) -> None:
    async with shared.row(alpha=None, config={"providers": {"alpha": speaking("responses")}}) as running:
        running["alpha"].answers = at_least_16(answer(WORDS * 4))
        status, headers, body = await asked(running, "chat", most, stream=True)
        assert running.received("alpha")[0].body["max_output_tokens"] == most
    assert (status, said_in("chat", body, stream=True)[0]) == (200, "".join(WORDS * 4))
    assert "x-holeshot-dropped" not in headers


async def test_a_deployment_that_writes_so_few_comes_first(shared: SharedGateways) -> None:
    config: dict[str, Any] = {"providers": {"alpha": speaking("responses"), "beta": speaking("chat")}}
    config["models"] = {MODEL: {"deployments": ["alpha/m", "beta/m"], "race": {"mode": "single"}}}
    async with shared.row(alpha=None, beta=None, config=config) as running:
        running["alpha"].answers = at_least_16(answer(WORDS))
        running["beta"].answers = lambda _: ANSWERS["chat"]
        for _ in range(5):
            _, headers, _ = await asked(running, "chat", 5, stream=False)
            assert headers["x-holeshot-deployment"] == f"beta{running.suffix}/m"


# Of a server of chat that says in its refusal what the least is (dotnet/extensions/issues/6945).

CHAT_LEAST = "Invalid 'max_completion_tokens': integer below minimum value. Expected a value >= 16, but got 5 instead."


def of_chat(words: list[str], least: int = 16) -> Any:
    return lambda body: refused(CHAT_LEAST) if limit_of(body) < least else said_in_chat(*words)


@pytest.mark.parametrize("raced", [False, True], ids=["alone", "raced"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("client", ["chat", "messages", "gemini", "responses"])
async def test_a_least_that_a_server_of_chat_states_is_learnt(
    shared: SharedGateways, client: str, stream: bool, raced: bool
) -> None:
    scripts: dict[str, Any] = {"alpha": None}
    if raced:
        scripts["beta"] = [Hang()]
    async with shared.row(**scripts) as running:
        running["alpha"].answers = of_chat(WORDS)
        for _ in range(3):
            status, headers, body = await asked(running, client, 5, stream=stream)
            assert (status, headers["x-holeshot-dropped"]) == (200, CLIENTS[client][2]), body
            end = {"chat": "length", "messages": "max_tokens", "gemini": "MAX_TOKENS"}.get(client)
            if client == "responses":
                assert b"how are" in body if not stream else b" are" in body
                assert b"you" not in body
                assert b"max_output_tokens" in body
            else:
                assert said_in(client, body, stream=stream)[:2] == ("Hello there, how are", end)
            if stream:
                assert wrong_order(client, body) is None
        limits = [limit_of(each.body) for each in running.received("alpha")]
        assert limits == [5, 16, 16, 16]
        status, headers, body = await asked(running, client, 40, stream=stream)
        assert (status, limit_of(running.received("alpha")[-1].body)) == (200, 40)
        assert "x-holeshot-dropped" not in headers
        assert b"you" in body


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("client", ["chat", "messages"])
async def test_an_answer_in_many_pieces_is_cut_at_the_limit(shared: SharedGateways, client: str, api: str) -> None:
    words = ["w", *[" w"] * 99]
    async with shared.row(alpha=None, config={"providers": {"alpha": speaking(api)}}) as running:
        running["alpha"].answers = of_chat(words) if api == "chat" else at_least_16(answer(words))
        for _ in range(2):
            status, _, body = await asked(running, client, 14, stream=True)
            assert (status, said_in(client, body, stream=True)[0].count("w")) == (200, 14)


async def test_each_of_several_answers_is_given_as_many(shared: SharedGateways) -> None:
    both = [{"index": n, "delta": {"content": "Hello there, how are you?"}, "finish_reason": "stop"} for n in range(2)]
    async with shared.row(alpha=None) as running:
        running["alpha"].answers = lambda body: (
            refused(CHAT_LEAST)
            if limit_of(body) < 16
            else [Raw(b"data: %b\n\ndata: [DONE]\n\n" % json.dumps(chunk_of(both)).encode(), token=True)]
        )
        status, _, body = await asked(running, "chat", 5, stream=False, n=2)
    choices = json.loads(body)["choices"]
    assert status == 200
    assert [(each["message"]["content"], each["finish_reason"]) for each in choices] == [
        ("Hello there, how are", "length")
    ] * 2


@pytest.mark.parametrize(
    "said",
    ["`max_tokens` must be at least 1, got 0.", "max_tokens: Expected a value >= 4096", "budget_tokens must be >= 16"],
)
async def test_other_words_of_a_least_are_told(shared: SharedGateways, said: str) -> None:
    async with shared.row(alpha=None) as running:
        running["alpha"].answers = lambda _: refused(said)
        status, _, body = await asked(running, "chat", 5, stream=False)
        assert (status, len(running.received("alpha"))) == (400, 1), body


async def test_one_that_is_known_to_write_more_is_asked_after_one_that_is_not(shared: SharedGateways) -> None:
    async with shared.row(alpha=None, beta=None, config=servers({"mode": "single"})) as running:
        running["alpha"].answers = of_chat(WORDS)
        running["beta"].answers = lambda _: ANSWERS["chat"]
        answerers: list[str] = []
        while f"alpha{running.suffix}/m" not in answerers:
            _, headers, _ = await asked(running, "chat", 5, stream=True)
            answerers.append(headers["x-holeshot-deployment"])
        for _ in range(5):
            _, headers, _ = await asked(running, "chat", 5, stream=True)
            assert headers["x-holeshot-deployment"] == f"beta{running.suffix}/m"


# More than fit beside the prompt.

CONTEXT = 32_768
FULL = (  # vLLM's words: claude-code-best/claude-code/issues/272
    f"This model's maximum context length is {CONTEXT} tokens. However, you requested 32000 output tokens and your"
    " prompt contains at least 2768 input tokens, for a total of at least 34768 tokens."
)
LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")


def prompt_of(client: str, text: str) -> dict[str, Any]:
    """The fields with which a client's API asks with a prompt."""
    if client == "gemini":
        return {"contents": [{"role": "user", "parts": [{"text": text}]}]}
    return {"input": text} if client == "responses" else {"messages": [{"role": "user", "content": text}]}


def limit_of(body: Any) -> int:
    config = body.get("generationConfig") or {}
    return int(next((body[name] for name in LIMITS if name in body), config.get("maxOutputTokens", 0)))


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("api", ["chat", "messages", "responses"])
@pytest.mark.parametrize("client", CLIENTS)
async def test_as_many_are_asked_as_fit_beside_the_prompt(
    shared: SharedGateways, client: str, api: str, stream: bool
) -> None:
    async with shared.row(alpha=None, config={"providers": {"alpha": speaking(api)}}) as running:
        running["alpha"].answers = lambda body: refused(FULL) if limit_of(body) > 30_000 else ANSWERS[api]
        status, headers, body = await asked(running, client, 32_000, stream=stream)
        assert status == 200, body
        assert headers["x-holeshot-lowered"] == CLIENTS[client][2]
        assert [limit_of(each.body) for each in running.received("alpha")] == [32_000, 30_000]
        status, headers, _ = await asked(running, client, 29_000, stream=stream)  # where it fits, it stays
        assert (status, headers.get("x-holeshot-lowered")) == (200, None)
        assert limit_of(running.received("alpha")[-1].body) == 29_000


def fits(text: str, api: str) -> Any:
    """Return a server of vLLM's, in which each word of ``text`` is a token."""

    def answers(body: Any) -> Any:
        prompt, limit = json.dumps(body).count(text.split(maxsplit=1)[0]), limit_of(body)
        said = (
            f"This model's maximum context length is {CONTEXT} tokens. However, you requested {limit} output tokens and"
            f" your prompt contains {prompt} input tokens, for a total of {prompt + limit} tokens."
        )
        return refused(said) if prompt + limit > CONTEXT else ANSWERS[api]

    return answers


@pytest.mark.parametrize("most", [32_000, 128_000])
@pytest.mark.parametrize("api", ["chat", "messages", "responses"])
@pytest.mark.parametrize("client", CLIENTS)
async def test_how_much_fits_is_learnt_by_one_refusal(shared: SharedGateways, client: str, api: str, most: int) -> None:
    """An agent asks for as much in each request, beside a prompt that grows."""
    async with shared.row(alpha=None, config={"providers": {"alpha": speaking(api)}}) as running:
        running["alpha"].answers = fits("words ", api)
        for words in (3_000, 6_000, 12_000, 24_000):
            prompt = prompt_of(client, "words " * words)
            status, headers, body = await asked(running, client, most, stream=False, **prompt)
            assert (status, headers["x-holeshot-lowered"]) == (200, CLIENTS[client][2]), body
            room = CONTEXT - words
            assert room * 0.75 < limit_of(running.received("alpha")[-1].body) <= room
        assert len(running.received("alpha")) == 5


async def test_one_that_is_known_to_have_no_room_is_asked_after_one_that_may_have(shared: SharedGateways) -> None:
    prompt = [{"role": "user", "content": "words " * 3_000}]
    async with shared.row(alpha=None, beta=None, config=servers({"mode": "single"})) as running:
        running.prefer("alpha", "beta")
        running["alpha"].answers = fits("words ", "chat")
        running["beta"].answers = lambda _: ANSWERS["chat"]
        for _ in range(3):
            status, headers, _ = await asked(running, "chat", 32_000, stream=True, messages=prompt)
            assert (status, headers["x-holeshot-deployment"], headers.get("x-holeshot-lowered")) == (
                200,
                f"beta{running.suffix}/m",
                None,
            )
        assert len(running.received("alpha")) == 1


async def test_who_asks_for_32000_where_they_fit_gets_them(shared: SharedGateways) -> None:
    async with shared.row(alpha=None, config={"providers": {"alpha": speaking("chat")}}) as running:
        running["alpha"].answers = lambda _: ANSWERS["chat"]
        status, headers, _ = await asked(running, "responses", 32_000, stream=True)
        assert (status, headers.get("x-holeshot-lowered")) == (200, None)
        assert [limit_of(each.body) for each in running.received("alpha")] == [32_000]


async def test_another_deployment_where_they_fit_is_asked_for_all_of_them(shared: SharedGateways) -> None:
    config: dict[str, Any] = {"models": {MODEL: {"deployments": ["alpha/m", "beta/m"], "race": {"mode": "single"}}}}
    async with shared.row(alpha=None, beta=None, config=config) as running:
        running.prefer("alpha", "beta")
        running["alpha"].answers = lambda _: refused(FULL)
        running["beta"].answers = lambda _: ANSWERS["chat"]
        status, headers, _ = await asked(running, "chat", 32_000, stream=True)
        assert (status, headers["x-holeshot-deployment"], headers.get("x-holeshot-lowered")) == (
            200,
            f"beta{running.suffix}/m",
            None,
        )
        assert [limit_of(each.body) for each in running.received("beta")] == [32_000]


SEVERAL: dict[str, dict[str, Any]] = {
    "in order": {"mode": "single"},
    "raced": {"mode": "race", "width": 2},
}


def room_at(tokens: int, *, context: int = CONTEXT) -> Any:
    """Return a server that has this much room beside the prompt."""
    said = (
        f"This model's maximum context length is {context} tokens. However, you requested 32000 output tokens and your"
        f" prompt contains {context - tokens} input tokens, for a total of {context - tokens + 32000} tokens."
    )
    return lambda body: refused(said) if limit_of(body) > tokens else None


def servers(race: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"models": {MODEL: {"deployments": ["alpha/m", "beta/m"], "race": race}, **more}}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("race", SEVERAL)
@pytest.mark.parametrize("client", CLIENTS)
async def test_of_several_the_one_with_most_room_is_asked_for_less_once_all_have_refused(
    shared: SharedGateways, client: str, race: str, stream: bool
) -> None:
    async with shared.row(alpha=None, beta=None, config=servers(SEVERAL[race])) as running:
        running.prefer("alpha", "beta")
        for name, room in {"alpha": 29_000, "beta": 30_000}.items():
            running[name].answers = lambda body, room=room: room_at(room)(body) or ANSWERS["chat"]
        status, headers, body = await asked(running, client, 32_000, stream=stream)
        assert status == 200, body
        assert headers["x-holeshot-lowered"] == CLIENTS[client][2]
        limits = [limit_of(each.body) for name in ("alpha", "beta") for each in running.received(name)]
        if client != "messages":  # whose limit each deployment lowers, as its clients have to set one
            assert limits == [32_000, 32_000, 30_000]
            assert headers["x-holeshot-deployment"] == f"beta{running.suffix}/m"
        assert len(await running.rows(f"select id from calls where model = '{MODEL}{running.suffix}'")) == 1


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("client", ["chat", "gemini", "responses"])
async def test_a_fallback_that_takes_all_is_asked_for_all(shared: SharedGateways, client: str, stream: bool) -> None:
    config = servers({"mode": "single"}, other={"deployments": ["gamma/m"]})
    config["models"][MODEL] |= {"deployments": ["alpha/m"], "fallbacks": ["other"]}
    async with shared.row(alpha=None, gamma=None, config=config) as running:
        running["alpha"].answers = lambda _: refused(FULL)
        running["gamma"].answers = lambda _: ANSWERS["chat"]
        status, headers, _ = await asked(running, client, 32_000, stream=stream)
        assert (status, headers["x-holeshot-fallback"], headers.get("x-holeshot-lowered")) == (
            200,
            f"other{running.suffix}",
            None,
        )
        assert [limit_of(each.body) for each in running.received("gamma")] == [32_000]
        assert len(running.received("alpha")) == 1


@pytest.mark.parametrize("room", [29_000, 31_000], ids=["less", "more"])
async def test_of_a_model_and_its_fallback_that_both_refuse_the_one_with_more_room_is_asked(
    shared: SharedGateways, room: int
) -> None:
    config = servers({"mode": "single"}, other={"deployments": ["gamma/m"]})
    config["models"][MODEL] |= {"deployments": ["alpha/m"], "fallbacks": ["other"]}
    async with shared.row(alpha=None, gamma=None, config=config) as running:
        running["alpha"].answers = lambda body: room_at(30_000)(body) or ANSWERS["chat"]
        running["gamma"].answers = lambda body: room_at(room)(body) or ANSWERS["chat"]
        status, headers, _ = await asked(running, "chat", 32_000, stream=False)
        assert (status, headers.get("x-holeshot-fallback")) == (
            200,
            f"other{running.suffix}" if room > 30_000 else None,
        )
        assert headers["x-holeshot-lowered"] == "max_tokens"
        assert len(running.received("alpha")) + len(running.received("gamma")) == 3


@pytest.mark.parametrize("race", SEVERAL)
async def test_it_is_asked_for_less_once_and_a_failure_of_that_is_told(shared: SharedGateways, race: str) -> None:
    async with shared.row(alpha=None, beta=None, config=servers(SEVERAL[race])) as running:
        for name in ("alpha", "beta"):
            running[name].answers = lambda _: refused(FULL)
        status, _, body = await asked(running, "chat", 32_000, stream=True)
        assert (status, json.loads(body)["error"]["code"]) == (400, "context_length_exceeded")
        assert sum(len(running.received(name)) for name in ("alpha", "beta")) == 3


@pytest.mark.parametrize("race", SEVERAL)
async def test_a_prompt_that_is_too_long_itself_is_refused_in_the_words_of_its_client(
    shared: SharedGateways, race: str
) -> None:
    async with shared.row(alpha=None, beta=None, config=servers(SEVERAL[race])) as running:
        for name in ("alpha", "beta"):
            running[name].answers = lambda body: room_at(100)(body) or ANSWERS["chat"]
        status, _, body = await asked(running, "responses", 32_000, stream=False)
        assert (status, json.loads(body)["error"]["code"]) == (400, "context_length_exceeded")
        assert sum(len(running.received(name)) for name in ("alpha", "beta")) == 2


async def test_where_one_is_down_that_might_take_all_nobody_is_asked_for_less(shared: SharedGateways) -> None:
    async with shared.row(alpha=None, beta=[Status(503)], config=servers({"mode": "single"})) as running:
        running.prefer("alpha", "beta")
        running["alpha"].answers = lambda _: refused(FULL)
        status, _, _ = await asked(running, "chat", 32_000, stream=False)
        assert status == 502
        assert len(running.received("alpha")) == 1


# vLLM 0.25 counts a prompt no further than it would fit, and its signs first (its renderers/params.py).
UNCOUNTED = {
    "tokens": f"your prompt contains at least {CONTEXT - 31_999} input tokens, for a total of at least {CONTEXT + 1}"
    " tokens.",
    "signs": "your prompt contains 9000 characters (more than 7680 characters, which is the upper bound for 768 input"
    " tokens).",
}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("said", UNCOUNTED)
async def test_the_room_beside_a_prompt_that_was_not_counted_is_estimated(
    shared: SharedGateways, said: str, client: str
) -> None:
    words = f"This model's maximum context length is {CONTEXT} tokens. However, you requested 32000 output tokens and "
    prompt = prompt_of(client, "word " * 1800)
    async with shared.row(alpha=None, config={"providers": {"alpha": speaking("chat")}}) as running:
        running["alpha"].answers = lambda body: (
            refused(words + UNCOUNTED[said]) if limit_of(body) > CONTEXT - 1800 else ANSWERS["chat"]
        )
        status, headers, _ = await asked(running, client, 32_000, stream=False, **prompt)
        assert (status, headers["x-holeshot-lowered"]) == (200, CLIENTS[client][2])
        first, second = (limit_of(each.body) for each in running.received("alpha"))
        assert first == 32_000
        assert second > 28_000


# Other servers' words, of an answer of 40,000 tokens beside a prompt of some 1,800.
OTHERS_WORDS = {
    "vLLM": f"max_tokens=40000 cannot be greater than max_model_len={CONTEXT}",
    "vLLM, of both": f"max_tokens=40000 cannot be greater than max_model_len=max_total_tokens={CONTEXT}. Please request"
    " fewer output tokens.",
    "TensorRT-LLM": "The sum of prompt length (1800) and query length (0) max_tokens (40000) should not exceed"
    f" max_seq_len ({CONTEXT})",
    "TensorRT-LLM, older": "The sum of prompt length (1800.0), query length (0) and max_tokens (40000) should not"
    f" exceed max_seq_len ({CONTEXT})",
}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("said", OTHERS_WORDS)
async def test_an_answer_that_is_longer_than_the_context_is_asked_for_as_it_fits(
    shared: SharedGateways, said: str, client: str
) -> None:
    prompt = prompt_of(client, "word " * 1800)
    async with shared.row(alpha=None, config={"providers": {"alpha": speaking("chat")}}) as running:
        running["alpha"].answers = lambda body: (
            refused(OTHERS_WORDS[said]) if limit_of(body) > CONTEXT - 1800 else ANSWERS["chat"]
        )
        status, headers, _ = await asked(running, client, 40_000, stream=False, **prompt)
        assert (status, headers["x-holeshot-lowered"]) == (200, CLIENTS[client][2])
        first, second = (limit_of(each.body) for each in running.received("alpha"))
        assert first == 40_000
        assert second > 28_000


# More than the model writes at most, whatever the prompt.

TOO_MANY = "max_completion_tokens is too large: 64000. This model supports at most 16384 completion tokens"  # OpenAI
GROQS = (  # which speaks of the context, and is about the answer alone: khoj-ai/khoj/issues/1236
    "`max_tokens` must be less than or equal to `16384`, the maximum value for `max_tokens` is less than the"
    " `context_window` for this model"
)


def at_most(tokens: int, said: str = TOO_MANY) -> Any:
    said = said.replace("16384", str(tokens))
    return lambda body: refused(said) if limit_of(body) > tokens else ANSWERS["chat"]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("said", [TOO_MANY, GROQS], ids=["OpenAI", "Groq"])
@pytest.mark.parametrize("client", ["chat", "gemini", "responses"])
async def test_as_many_are_asked_as_the_model_writes_and_one_refusal_teaches_it(
    shared: SharedGateways, client: str, said: str, stream: bool
) -> None:
    async with shared.row(alpha=None, config={"providers": {"alpha": speaking("chat")}}) as running:
        running["alpha"].answers = at_most(16_384, said)
        for _ in range(2):
            status, headers, body = await asked(running, client, 64_000, stream=stream)
            assert (status, headers.get("x-holeshot-lowered")) == (200, CLIENTS[client][2]), body
        assert [limit_of(each.body) for each in running.received("alpha")] == [64_000, 16_384, 16_384]
        status, headers, _ = await asked(running, client, 9_000, stream=stream)
        assert (status, headers.get("x-holeshot-lowered")) == (200, None)


@pytest.mark.parametrize("race", SEVERAL)
@pytest.mark.parametrize("client", ["chat", "gemini", "responses"])
async def test_who_writes_that_much_is_asked_first_and_of_those_that_do_not_the_one_that_writes_most(
    shared: SharedGateways, client: str, race: str
) -> None:
    async with shared.row(alpha=None, beta=None, config=servers(SEVERAL[race])) as running:
        running.prefer("alpha", "beta")
        running["alpha"].answers = at_most(16_384)
        running["beta"].answers = lambda _: ANSWERS["chat"]
        for _ in range(3):
            status, headers, body = await asked(running, client, 64_000, stream=True)
            assert (status, headers["x-holeshot-deployment"], headers.get("x-holeshot-lowered")) == (
                200,
                f"beta{running.suffix}/m",
                None,
            ), body
        assert len(running.received("alpha")) == 1
        running["beta"].answers = at_most(32_768)
        status, headers, body = await asked(running, client, 64_000, stream=True)
        assert (status, headers["x-holeshot-deployment"]) == (200, f"beta{running.suffix}/m"), body
        assert headers["x-holeshot-lowered"] == CLIENTS[client][2]
        assert limit_of(running.received("beta")[-1].body) == 32_768


async def test_a_fallback_that_writes_that_much_is_asked_for_all_of_it(shared: SharedGateways) -> None:
    config = servers({"mode": "single"}, other={"deployments": ["gamma/m"]})
    config["models"][MODEL] |= {"deployments": ["alpha/m"], "fallbacks": ["other"]}
    async with shared.row(alpha=None, gamma=None, config=config) as running:
        running["alpha"].answers = at_most(16_384)
        running["gamma"].answers = lambda _: ANSWERS["chat"]
        status, headers, _ = await asked(running, "chat", 64_000, stream=True)
        assert (status, headers["x-holeshot-fallback"], headers.get("x-holeshot-lowered")) == (
            200,
            f"other{running.suffix}",
            None,
        )


async def test_a_shorter_answer_that_is_refused_too_is_told_in_the_vendors_words(shared: SharedGateways) -> None:
    async with shared.row(alpha=None, config={"providers": {"alpha": speaking("chat")}}) as running:
        running["alpha"].answers = lambda _: refused(TOO_MANY)
        status, _, body = await asked(running, "chat", 64_000, stream=True)
        assert (status, b"supports at most 16384" in body) == (400, True)
        assert b"context_length" not in body
        assert len(running.received("alpha")) == 2
