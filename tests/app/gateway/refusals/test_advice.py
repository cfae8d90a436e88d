"""Each advice of a 400 of the translations works: who follows it gets a 200, from a server with its API's rules."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from providers.dialects import converse_from_chat
from providers.simulator import Raw, Status, Step, answer
from tests.app.gateway.apis.test_dialects import MESSAGE_BYTES, RESPONSE_BYTES, speaking
from tests.app.gateway.apis.test_gemini import TEXT_BYTES
from tests.app.gateway.running_gateway import Serve
from tests.unit.providers.dialects import strict_apis
from tests.unit.providers.dialects.test_calls_and_results import WRONG, history

ADVICE = "(drop_params: true leaves it out)"
HI = {"role": "user", "content": "Hi"}
CUSTOM = [
    HI,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "custom", "custom": {"name": "f", "input": "x"}}],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    HI,
]
FUNCTION: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALLED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "rain"}}],
}
CHAT: list[dict[str, Any]] = [
    {"messages": [HI], "n": 2},
    {"messages": [HI], "seed": 1, "logprobs": True, "top_logprobs": 2, "logit_bias": {"1": 1}},
    {"messages": [HI], "frequency_penalty": 1, "presence_penalty": 1, "verbosity": "low"},
    {"messages": [HI], "stop": [" ", "a", "b", "c"], "temperature": 1.5, "from_the_future": 1},
    {"messages": [HI], "functions": [{"name": "f"}], "function_call": {"name": "f"}},
    {"messages": [HI], "tools": [{"type": "custom", "custom": {"name": "f"}}], "tool_choice": "required"},
    {"messages": [HI], "tools": [FUNCTION], "parallel_tool_calls": False, "seed": 1},
    {"messages": [HI], "response_format": {"type": "json_object"}},
    {"messages": CUSTOM},
    {"messages": CUSTOM, "tools": [FUNCTION]},
    {"messages": [HI, CALLED, CUSTOM[2]]},
    {"messages": [HI, {"role": "function", "name": "f", "content": "x"}, HI]},
    {"messages": [HI, {"role": "assistant", "content": "so"}]},
    {"messages": [{"role": "assistant", "content": "Hello"}, HI]},
    {"messages": [{"role": "system", "content": "Be brief."}]},
    {
        "messages": [
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]}
        ]
    },
    {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "file_1"}}]}]},
]
RESPONSES: list[dict[str, Any]] = [
    {"input": "Hi", "tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}},
    {"input": "Hi", "truncation": "auto", "background": False, "from_the_future": 1},
    {"input": [HI, {"type": "local_shell_call", "call_id": "a", "action": {}, "status": "completed"},
               {"type": "local_shell_call_output", "call_id": "a", "output": "x"}]},
    {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "https://a.example/b.pdf"}]}]},
    {"input": [{"type": "item_reference", "id": "msg_1"}, HI]},
]  # fmt: skip
MESSAGES: list[dict[str, Any]] = [
    {"messages": [HI], "top_k": 5, "mcp_servers": [{"type": "url", "url": "https://a.example", "name": "a"}]},
    {"messages": [HI], "tools": [{"type": "web_search_20250305", "name": "web_search"}]},
    {"messages": [HI, {"role": "assistant", "content": "so"}]},
    {"messages": [HI, {"role": "assistant", "content": [{"type": "server_tool_use", "id": "a", "name": "web_search",
                                                         "input": {}}]}, HI]},
    {"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "url", "url": "u"}}]}]},
]  # fmt: skip
GEMINI: list[dict[str, Any]] = [
    {"contents": [{"parts": [{"text": "Hi"}]}], "generationConfig": {"topK": 3, "responseModalities": ["AUDIO"]}},
    {"contents": [{"parts": [{"text": "Hi"}]}], "tools": [{"googleSearch": {}}]},
    {"contents": [{"parts": [{"text": "Hi"}]}, {"role": "model", "parts": [{"text": "so"}]}]},
    {"contents": [{"parts": [{"fileData": {"mimeType": "video/mp4", "fileUri": "https://a.example/b.mp4"}}]}]},
]
BODIES = {"chat": CHAT, "responses": RESPONSES, "messages": MESSAGES, "gemini": GEMINI}
PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "gemini": "/v1beta/models/{model}:generateContent",
}
ANSWERS: Mapping[str, Sequence[Step]] = {
    "chat": answer("Hello"),
    "responses": [Raw(RESPONSE_BYTES, token=True)],
    "messages": [Raw(MESSAGE_BYTES, token=True)],
    "gemini": [Raw(TEXT_BYTES, token=True)],
}


def strict(api: str) -> Callable[[Any], Sequence[Step]]:
    """Return a server that answers what is valid in its API, and refuses the rest."""

    def asked(body: Any) -> Sequence[Step]:
        faults = getattr(strict_apis, f"faults_of_{api}")(body)
        return [Status(400, {"error": {"message": "; ".join(faults)}})] if faults else ANSWERS[api]

    return asked


def asked(api: str, model: str, fields: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the body and the path of a request."""
    body = fields if api == "gemini" else {"model": model, "max_tokens": 99, **fields}
    if api == "responses":
        del body["max_tokens"]
    return body, PATHS[api].format(model=model)


MODELS = {
    "strict": {"deployments": ["alpha/m"]},
    "lax": {"deployments": [{"deployment": "alpha/m", "drop_params": True}]},
}
PAIRS = [(source, target) for source in PATHS for target in PATHS if source != target]


@pytest.mark.parametrize(("source", "target"), PAIRS)
async def test_who_follows_the_advice_of_a_400_gets_a_200(serve: Serve, source: str, target: str) -> None:
    config = {"providers": {"alpha": speaking(target)}, "models": MODELS}
    advised, wrong = 0, []
    async with serve(alpha=None, config=config) as running:
        running["alpha"].answers = strict(target)
        for fields in BODIES[source]:
            body, path = asked(source, "strict", fields)
            async with running.post(body, path=path) as response:
                status, said = response.status, await response.text()
            if status == 200 or ADVICE not in said:
                continue
            advised += 1
            body, path = asked(source, "lax", fields)
            async with running.post(body, path=path) as response:
                if response.status != 200:
                    wrong.append((fields, await response.text()))
    assert wrong == []
    assert advised


BEGUN = {"messages": [{**CALLED, "content": "Hello"}, CUSTOM[2], {"role": "assistant", "content": "Rain"}, HI]}


@pytest.mark.parametrize("fields", [BEGUN, *(each for each in CHAT if len(each["messages"]) > 1 or len(each) > 1)])
def test_what_converse_is_sent_without_what_it_lacks_is_valid(fields: dict[str, Any]) -> None:
    raw = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}
    wording = converse_from_chat(raw, "amazon.nova-pro-v1:0")
    # Before an assistant's turn a user's is put; a free-form call is one of a function with one text.
    assert wording.losses or fields["messages"][0]["role"] == "assistant" or fields["messages"] is CUSTOM
    assert strict_apis.faults_of_converse(msgspec.json.decode(msgspec.json.encode(wording.fields))) == []


@pytest.mark.parametrize(("source", "target"), PAIRS)
async def test_a_history_that_no_api_takes_is_refused_in_the_clients_own_api(
    serve: Serve, source: str, target: str
) -> None:
    config = {"providers": {"alpha": speaking(target)}, "models": MODELS}
    async with serve(alpha=None, config=config) as running:
        for turns, paths in WRONG.values():
            for model in MODELS:
                told = history(source, *turns)
                told.pop("model", None)
                body, path = asked(source, model, told)
                async with running.post(body, path=path) as response:
                    said = (await response.json())["error"]
                assert response.status == 400
                assert paths[source] in said["message"]
                match source:
                    case "chat" | "responses":
                        assert (said["type"], said["param"]) == ("invalid_request_error", paths[source])
                    case "messages":
                        assert said["type"] == "invalid_request_error"
                    case "gemini":
                        assert said["status"] == "INVALID_ARGUMENT"
        assert running["alpha"].received == []
