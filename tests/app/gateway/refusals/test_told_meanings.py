"""What a refusal means, told in each API as its own vendor tells it: by this programs wait, end, or ask for a key.

A row of the table in ``providers/dialects/meanings.py`` is a row here; a prompt that is too long is in
``test_meanings.py``.
"""

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from providers import Meaning
from providers.dialects import TELLINGS
from providers.simulator import Delta, Done, Drop, ErrorEvent, Gate, RoleOnly, Status, Step
from tests.app.gateway.apis.test_dialects import speaking
from tests.app.gateway.limits.test_limits import PRICED, statuses
from tests.app.gateway.races.test_objectives import KEY, client, keyed
from tests.app.gateway.refusals.test_meanings import ASKED, CHATS, asked, errors_behind_a_comment
from tests.app.gateway.running_gateway import MODEL, Serve, single
from tests.app.gateway.shared_gateway import SharedGateways


def openai(status: int, message: str, code: str | None, type_: str = "invalid_request_error") -> Status:
    return Status(status, {"error": {"message": message, "type": type_, "param": None, "code": code}})


def anthropic(status: int, type_: str, message: str) -> Status:
    return Status(status, {"type": "error", "error": {"type": type_, "message": message}})


def google(status: int, word: str, message: str, *details: Mapping[str, Any]) -> Status:
    return Status(status, {"error": {"code": status, "message": message, "status": word, "details": details}})


PER_DAY = {
    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
    "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}],
}
WAIT = {"retry-after": "17"}
# By meaning, vendors' refusals: the API that is spoken there, and the answer.
REFUSED: Mapping[str, tuple[Meaning, str, Status]] = {
    "Anthropic, overloaded": (Meaning.OVERLOADED, "messages", anthropic(529, "overloaded_error", "Overloaded")),
    "Google, overloaded": (
        Meaning.OVERLOADED,
        "gemini",
        google(503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    ),
    "OpenAI, overloaded": (
        Meaning.OVERLOADED,
        "responses",
        openai(503, "Our servers are currently overloaded.", "server_is_overloaded", "service_unavailable_error"),
    ),
    "OpenAI, too many": (
        Meaning.RATE,
        "chat",
        msgspec.structs.replace(openai(429, "Rate limit reached.", "rate_limit_exceeded", "requests"), headers=WAIT),
    ),
    "Google, of the day": (Meaning.DAY, "gemini", google(429, "RESOURCE_EXHAUSTED", "You exceeded it.", PER_DAY)),
    "Groq, of the day": (
        Meaning.DAY,
        "chat",
        openai(429, "Rate limit reached on tokens per day (TPD): Limit 100000", "rate_limit_exceeded", "tokens"),
    ),
    "OpenAI, unpaid": (
        Meaning.UNPAID,
        "chat",
        openai(
            429, "You exceeded your current quota, please check your plan and billing details.", "insufficient_quota"
        ),
    ),
    "Anthropic, unpaid": (
        Meaning.UNPAID,
        "messages",
        anthropic(400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API."),
    ),
    "Azure, filter": (Meaning.CONTENT, "chat", openai(400, "The response was filtered", "content_filter")),
    "Alibaba, filter": (
        Meaning.CONTENT,
        "chat",
        openai(400, "Input data may contain inappropriate content.", "data_inspection_failed"),
    ),
    "Anthropic, filter": (
        Meaning.CONTENT,
        "messages",
        anthropic(400, "invalid_request_error", "Output blocked by content filtering policy"),
    ),
    "xAI, filter": (  # the status and code of a key without permission
        Meaning.CONTENT,
        "chat",
        Status(
            403,
            {
                "code": "The caller does not have permission to execute the specified operation",
                "error": "Content violates usage guidelines. Team: t, API key ID: k, Model: grok-4.6,"
                " Failed check: SAFETY_CHECK_TYPE_BIO",
            },
        ),
    ),
    "OpenRouter, filter": (
        Meaning.CONTENT,
        "chat",
        Status(
            403,
            {
                "error": {
                    "message": 'm requires moderation on Anthropic. Your input was flagged for "violence/graphic".',
                    "code": 403,
                    "metadata": {"reasons": ["violence/graphic"], "flagged_input": "a text", "provider_name": "P"},
                }
            },
        ),
    ),
    "a law, in chat": (Meaning.CONTENT, "chat", openai(451, "Unavailable for legal reasons", None)),
    "a law, in messages": (
        Meaning.CONTENT,
        "messages",
        anthropic(451, "invalid_request_error", "Unavailable for legal reasons"),
    ),
    "a law, at Google": (Meaning.CONTENT, "gemini", google(451, "FAILED_PRECONDITION", "Not for you")),
    "OpenAI, gone": (
        Meaning.GONE,
        "chat",
        openai(404, "The model `m` does not exist or you do not have access to it.", "model_not_found"),
    ),
    "Groq, gone": (
        Meaning.GONE,
        "chat",
        openai(400, "The model `m` has been decommissioned and is no longer supported.", "model_decommissioned"),
    ),
    "Copilot, gone": (
        Meaning.GONE,
        "chat",
        openai(400, "The requested model is not supported.", "model_not_supported"),
    ),
    "Cloudflare, gone": (
        Meaning.GONE,
        "chat",
        Status(400, {"errors": [{"code": 7000, "message": "No such model m or task"}], "success": False}),
    ),
    "xAI, gone": (
        Meaning.GONE,
        "chat",
        Status(400, {"code": "Client specified an invalid argument", "error": "Model not found: m"}),
    ),
    "GitHub, gone": (Meaning.GONE, "chat", openai(400, "Unknown model: m", "unknown_model")),
    "Zhipu, gone": (Meaning.GONE, "chat", openai(400, "模型不存在,请检查模型代码。", "1211")),
    "in Chinese, gone": (Meaning.GONE, "chat", openai(400, "该模型已下线,请使用其他模型", None)),
    "Anthropic, gone": (Meaning.GONE, "messages", anthropic(404, "not_found_error", "model: m")),
    "OpenAI, barred": (
        Meaning.GONE,
        "chat",
        openai(403, "Project `proj_1` does not have access to model `m`", "model_not_found"),
    ),
    "Bedrock, barred": (
        Meaning.GONE,
        "messages",
        anthropic(403, "permission_error", "You don't have access to the model with the specified model ID."),
    ),
    "Vertex, barred": (
        Meaning.GONE,
        "gemini",
        google(
            403,
            "PERMISSION_DENIED",
            "Permission 'aiplatform.endpoints.predict' denied on resource"
            " '//aiplatform.googleapis.com/projects/p/publishers/google/models/m' (or it may not exist).",
        ),
    ),
    "LiteLLM, barred": (
        Meaning.GONE,
        "chat",
        openai(401, "key not allowed to access model. Tried to access m", "401", "key_model_access_denied"),
    ),
    "Google, gone": (
        Meaning.GONE,
        "gemini",
        google(404, "NOT_FOUND", "models/m is not found for API version v1beta, or is not supported."),
    ),
}
STATUS = {
    Meaning.OVERLOADED: 503,
    Meaning.RATE: 429,
    Meaning.DAY: 429,
    Meaning.SPENT: 429,
    Meaning.UNPAID: 424,  # the operator's fault, and no key's: see ``gateway/core/errors.py``
    Meaning.CONTENT: 400,
    Meaning.KEY: 401,
    Meaning.GONE: 404,
}
CODES = {
    Meaning.OVERLOADED: {"server_is_overloaded", "slow_down"},
    Meaning.RATE: {"rate_limit_exceeded"},
    Meaning.DAY: {"rate_limit_exceeded"},
    Meaning.SPENT: {"insufficient_quota"},
    Meaning.UNPAID: {"insufficient_quota"},
    Meaning.CONTENT: {"invalid_prompt", "content_filter"},
    Meaning.KEY: {"invalid_api_key"},
    Meaning.GONE: {"model_not_found"},
}
TYPES = {
    Meaning.OVERLOADED: "overloaded_error",
    Meaning.RATE: "rate_limit_error",
    Meaning.DAY: "rate_limit_error",
    Meaning.SPENT: "rate_limit_error",
    Meaning.UNPAID: "billing_error",
    Meaning.CONTENT: "invalid_request_error",
    Meaning.KEY: "authentication_error",
    Meaning.GONE: "not_found_error",
}
WORDS = {
    Meaning.OVERLOADED: "UNAVAILABLE",
    Meaning.RATE: "RESOURCE_EXHAUSTED",
    Meaning.DAY: "RESOURCE_EXHAUSTED",
    Meaning.SPENT: "RESOURCE_EXHAUSTED",
    Meaning.UNPAID: "FAILED_PRECONDITION",
    Meaning.CONTENT: "INVALID_ARGUMENT",
    Meaning.KEY: "UNAUTHENTICATED",
    Meaning.GONE: "NOT_FOUND",
}
OF_INTERACTIONS = {  # Google's words for its statuses there
    Meaning.OVERLOADED: "unavailable",
    Meaning.RATE: "rate_limit_exceeded",
    Meaning.DAY: "rate_limit_exceeded",
    Meaning.SPENT: "rate_limit_exceeded",
    Meaning.UNPAID: "failed_precondition",
    Meaning.CONTENT: "invalid_request",
    Meaning.KEY: "authentication",
    Meaning.GONE: "not_found",
}


def is_final_to_gemini_cli(error: Mapping[str, Any]) -> bool:
    """As packages/core/src/utils/googleQuotaErrors.ts decides of 429 and 503."""
    details = {each["@type"].rpartition(".")[2]: each for each in error.get("details", ())}
    quotas = [each["quotaId"] for each in details.get("QuotaFailure", {}).get("violations", ())]
    wait = details.get("RetryInfo", {}).get("retryDelay", "0s")
    return any("PerDay" in each for each in quotas) or float(wait.removesuffix("s")) > 300


def check(meaning: Meaning, api: str, error: Mapping[str, Any]) -> None:
    if api == "messages":
        assert error["type"] == TYPES[meaning]
    elif api == "gemini":
        assert (error["code"], error["status"]) == (STATUS[meaning], WORDS[meaning])
        assert is_final_to_gemini_cli(error) is (meaning in {Meaning.DAY, Meaning.SPENT, Meaning.UNPAID})
    elif api == "interactions":
        assert error["code"] == OF_INTERACTIONS[meaning]
    else:
        assert error["code"] in CODES[meaning]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", ASKED)
@pytest.mark.parametrize("name", REFUSED)
async def test_a_refusal_is_told_as_the_vendor_of_the_clients_api_tells_it(
    shared: SharedGateways, name: str, api: str, *, stream: bool
) -> None:
    meaning, spoken, refusal = REFUSED[name]
    async with shared.row(alpha=[refusal], config={"providers": {"alpha": speaking(spoken)}, **single()}) as running:
        status, body = await asked(running, api, stream=stream)
        row = await running.call()
    assert status == row["status_code"] == STATUS[meaning], body
    check(meaning, api, body["error"])


def test_each_row_of_the_table_is_tried_and_has_a_word_of_each_vendor() -> None:
    assert {meaning for meaning, *_ in REFUSED.values()} | {Meaning.TOO_LONG, Meaning.SPENT, Meaning.KEY} == set(
        Meaning
    )
    assert {frozenset(told) for told in TELLINGS.values()} == {frozenset({"openai", "anthropic", "google"})}
    for told in TELLINGS.values():
        assert all(each.own.search(each.words) is not None for each in told.values())


# Over a WebSocket, and where the response has begun.


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", [name for name in REFUSED if REFUSED[name][1] != "responses"])
async def test_over_a_websocket_it_is_told_as_over_http(shared: SharedGateways, name: str) -> None:
    meaning, spoken, refusal = REFUSED[name]
    config = {"providers": {"alpha": speaking(spoken)}, **single()}
    async with (
        shared.row(alpha=[refusal], config=config) as running,
        running.http.ws_connect(running.url + "/v1/responses", compress=0) as wire,
    ):
        model = MODEL + running.suffix
        await wire.send_json({"type": "response.create", "model": model, "input": "Hi", "store": False})
        told = await wire.receive_json()
    assert (told["type"], told["status"]) == ("error", STATUS[meaning])
    check(meaning, "responses", told["error"])
    if refusal.headers:
        assert told["headers"]["retry-after"] == "17"


LATE = {
    "Anthropic, overloaded": "server_is_overloaded",
    "OpenAI, too many": "rate_limit_exceeded",
    "OpenAI, unpaid": "insufficient_quota",
    "Alibaba, filter": "invalid_prompt",
    "Azure, filter": "content_filter",
    "OpenAI, gone": "model_not_found",
}


@pytest.mark.parametrize("api", ASKED)
@pytest.mark.parametrize("name", LATE)
async def test_a_response_that_has_begun_is_told_so_in_its_stream(serve: Serve, name: str, api: str) -> None:
    meaning, spoken, refusal = REFUSED[name]
    data, *more = await errors_behind_a_comment(serve, api, spoken, refusal)
    error = json.loads(data)["error"]
    if api == "messages":
        assert error["type"] == TYPES[meaning]
    elif api == "gemini":
        assert error["status"] == ("RESOURCE_EXHAUSTED" if meaning is Meaning.UNPAID else WORDS[meaning])
    elif api == "interactions":
        assert error["code"] in {OF_INTERACTIONS[meaning], "rate_limit_exceeded"}
    else:
        assert error["code"] == LATE[name]
    # Codex ends a turn at an overload that it finds in ``response.failed``, and asks again without.
    failed = [json.loads(each)["response"]["error"]["code"] for each in more]
    is_told_twice = api == "responses" and LATE[name] not in {"server_is_overloaded", "content_filter"}
    assert failed == [LATE[name]] * is_told_twice


BROKEN = {
    "overloaded": (ErrorEvent("The model is overloaded.", 503), "server_is_overloaded", "overloaded_error", 503),
    "limited": (ErrorEvent("Slow down, please", "rate_limit_exceeded"), "rate_limit_exceeded", "rate_limit_error", 429),
}


@pytest.mark.parametrize("api", ASKED)
@pytest.mark.parametrize("name", BROKEN)
async def test_an_answer_that_breaks_off_says_why(serve: Serve, name: str, api: str) -> None:
    event, code, type_, status = BROKEN[name]
    error = await broken_off(serve, api, event, Done())
    assert {"messages": error.get("type"), "gemini": error.get("code")}.get(api, error.get("code")) == {
        "messages": type_,
        "gemini": status,
        "interactions": {503: "unavailable", 429: "rate_limit_exceeded"}[status],
    }.get(api, code)


# What a provider says no word of. pi and opencode ask again by the words alone, in each API: "server.?error" in
# packages/ai/src/utils/retry.ts of https://github.com/earendil-works/pi, 1.6.0, and "server error" in opencode 1.18.33,
# tried on 2026-11-29.
SILENT: Mapping[str, Step] = {"it is cut": Drop(), "it ends too early": Delta(" world")}
# Beside the words, by API, the event in which the error is: what else programs look for is in ``failure`` of each API.
IN_EVENT: Mapping[str, Mapping[str, Any]] = {
    "messages": {"request_id": "my-request"},
    "responses": {"code": "ECONNRESET"},
    "gemini": {"promptFeedback": ""},
}


@pytest.mark.parametrize("api", ASKED)
@pytest.mark.parametrize("name", SILENT)
async def test_an_answer_that_breaks_off_without_a_word_is_told_so_that_programs_ask_again(
    serve: Serve, name: str, api: str
) -> None:
    event = await event_of_break(serve, api, SILENT[name])
    assert event["error"]["message"].startswith("server error: ")
    assert event["error"]["message"].endswith(" (alpha/m)")  # as errors before an answer name it
    more = IN_EVENT.get(api, {})
    assert {each: event[each] for each in more} == more


async def broken_off(serve: Serve, api: str, *steps: Step) -> Mapping[str, Any]:
    """Return the error that a client is told in a stream, behind its first words."""
    return (await event_of_break(serve, api, *steps))["error"]  # type: ignore[no-any-return] # an object


async def event_of_break(serve: Serve, api: str, *steps: Step) -> Mapping[str, Any]:
    """Return the event of that error."""
    go = asyncio.Event()
    path, fields = ASKED[api]
    url = path.format(model=MODEL, method="streamGenerateContent") + "?alt=sse" * (api == "gemini")
    body = fields | ({} if api == "gemini" else {"model": MODEL, "stream": True})
    async with (
        serve(alpha=[RoleOnly(), Delta("Hello"), Gate(go), *steps], config=single()) as running,
        running.http.post(running.url + url, json=body, headers={"x-request-id": "my-request"}) as response,
    ):
        await response.content.readline()
        go.set()
        text = await response.text()
    events = [json.loads(each) for each in re.findall(r"^data: (\{.*\})\r?$", text, re.MULTILINE)]
    [event] = [each for each in events if each.get("error")]
    return event  # type: ignore[no-any-return] # an object


# What waits, and what ends.


@pytest.mark.parametrize("api", ASKED)
async def test_a_program_is_told_when_to_come_back(serve: Serve, api: str) -> None:
    refusal = REFUSED["OpenAI, too many"][2]
    async with serve(alpha=[refusal], config=single()) as running:
        path, fields = ASKED[api]
        body = fields | ({} if api == "gemini" else {"model": MODEL})
        url = running.url + path.format(model=MODEL, method="generateContent")
        async with running.http.post(url, json=body) as response:
            told = await response.json()
    assert response.headers["retry-after"] == "17"
    if api == "gemini":
        [wait] = [each["retryDelay"] for each in told["error"]["details"] if "retryDelay" in each]
        assert wait == "17s"


@pytest.mark.parametrize("api", ASKED)
async def test_a_limit_in_dollars_ends_programs(serve: Serve, api: str) -> None:
    async with serve(alpha=None, config={**PRICED, **client(usd_per_day=0.0001)}, key=KEY) as running:
        while (await statuses(running, 1)) == [200]:
            pass
        path, fields = ASKED[api]
        body = fields | ({} if api == "gemini" else {"model": MODEL})
        url = running.url + path.format(model=MODEL, method="generateContent")
        async with running.http.post(url, json=body, headers=keyed()) as response:
            told = await response.json()
    assert (response.status, response.headers["x-should-retry"]) == (429, "false"), told
    check(Meaning.SPENT, api, told["error"])
    if api == "messages":
        assert told["error"]["details"] == {"error_code": "enforced_spend_limit_reached"}
        assert "have reached your specified API usage limits" in told["error"]["message"]


@pytest.mark.parametrize("api", ASKED)
async def test_a_wrong_key_is_told_so(serve: Serve, api: str) -> None:
    async with serve(alpha=None, config=client(), key=KEY) as running:
        path, fields = ASKED[api]
        body = fields | ({} if api == "gemini" else {"model": MODEL})
        url = running.url + path.format(model=MODEL, method="generateContent")
        async with running.http.post(url, json=body, headers={"authorization": "Bearer wrong"}) as response:
            told = await response.json()
    assert response.status == 401
    check(Meaning.KEY, api, told["error"])
    if api == "gemini":
        assert "API key not valid" in told["error"]["message"]
        assert told["error"]["details"][0]["reason"] == "API_KEY_INVALID"
    if api == "messages":
        assert "x-api-key" in told["error"]["message"]


@pytest.mark.parametrize("api", ASKED)
async def test_a_name_that_is_not_configured_is_told_as_a_model_that_is_gone(serve: Serve, api: str) -> None:
    async with serve(alpha=None) as running:
        status, body = await asked(running, api, model="nobody")
    assert status == 404
    check(Meaning.GONE, api, body["error"])


async def test_a_model_that_is_gone_stays_gone_while_it_is_out(serve: Serve) -> None:
    async with serve(alpha=[REFUSED["OpenAI, gone"][2]], config=single()) as running:
        assert [(await asked(running, "chat"))[0] for _ in range(3)] == [404] * 3


# The other side: nothing is told that was not said by all.

DOWN, PATH, WRONG = Status(503), Status(404, {"detail": "Not Found"}), openai(401, "Incorrect API key provided", None)


@pytest.mark.parametrize(
    ("name", "other", "status", "code"),
    [
        ("OpenAI, overloaded", DOWN, 502, "all_providers_failed"),
        ("OpenAI, overloaded", REFUSED["OpenAI, gone"][2], 502, "all_providers_failed"),
        ("OpenAI, gone", DOWN, 502, "all_providers_failed"),
        ("OpenAI, gone", WRONG, 424, "provider_misconfigured"),
        ("OpenAI, gone", PATH, 424, "provider_not_found"),
        ("OpenAI, unpaid", DOWN, 502, "all_providers_failed"),
    ],
)
async def test_what_only_some_have_said_is_not_told(
    serve: Serve, name: str, other: Status, status: int, code: str
) -> None:
    async with serve(alpha=[REFUSED[name][2]], beta=[other]) as running:
        told, body = await asked(running, "chat")
    assert (told, body["error"]["code"]) == (status, code), body


@pytest.mark.parametrize("first", [DOWN, Status(429), CHATS], ids=["down", "limited", "too long"])
async def test_a_fallback_that_is_gone_hides_no_model_that_may_answer_later(serve: Serve, first: Status) -> None:
    models = {MODEL: {"deployments": ["alpha/m"], "fallbacks": ["spare"]}, "spare": {"deployments": ["beta/m"]}}
    async with serve(alpha=[first], beta=[REFUSED["OpenAI, gone"][2]], config={"models": models}) as running:
        status, body = await asked(running, "chat")
    assert status == {503: 502, 429: 429, 400: 400}[first.status], body


async def test_words_of_a_request_are_no_filter(serve: Serve) -> None:
    refusal = openai(400, "Invalid value: 'moderation' must be one of 'auto', 'low'.", "invalid_value")
    async with serve(alpha=[refusal]) as running:
        _, body = await asked(running, "responses")
    assert body["error"]["code"] == "invalid_value"
