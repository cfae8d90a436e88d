"""Google blocks a prompt with status 200 and no candidate: a filter of one vendor's, as others say it with a 400."""

import json
from typing import Any

import pytest

from providers.simulator import Raw, Status, answer
from tests.app.gateway.apis.test_dialects import speaking
from tests.app.gateway.refusals.test_meanings import ASKED, asked
from tests.app.gateway.refusals.test_refusals_of_one_vendor import FILTERS, ORDERED, STREAMS, counts, of
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve
from tests.app.gateway.shared_gateway import SharedGateways

pytestmark = pytest.mark.asyncio(loop_scope="module")
REASONS = ("SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT", "IMAGE_SAFETY", "MODEL_ARMOR", "JAILBREAK")
GOOGLE = {"alpha": speaking("gemini", kind="gemini")}


def said(*parts: Any, finish: str | None = None, **more: Any) -> bytes:
    candidate = {"content": {"role": "model", "parts": list(parts)}, "finishReason": finish, "index": 0}
    usage = {"promptTokenCount": 8, "totalTokenCount": 8}
    whole = {"candidates": [candidate], **more} if parts or finish else more
    return b"data: " + json.dumps({**whole, "usageMetadata": usage}).encode() + b"\r\n\r\n"


def blocked(reason: str = "PROHIBITED_CONTENT") -> bytes:
    return said(promptFeedback={"blockReason": reason}, modelVersion="g", responseId="r")


def config(*names: str, order: str = "single", **more: Any) -> dict[str, Any]:
    spare = {"spare": of(("delta",))} if more else {}
    return {"providers": GOOGLE, "models": {MODEL: of(names, order, **more), **spare}}


def refuse(running: RunningGateway, *names: str) -> None:
    for name in names:
        running[name].script = FILTERS["Azure"].whole()


@STREAMS
@ORDERED
@pytest.mark.parametrize("api", ASKED)
async def test_another_vendor_answers_a_prompt_that_google_blocks(
    shared: SharedGateways, api: str, order: str, stream: bool
) -> None:
    async with shared.row(
        alpha=[Raw(blocked())], beta=answer("Hello"), config=config("alpha", "beta", order=order)
    ) as running:
        running.prefer("alpha", "beta")
        status, body = await asked(running, api, stream=stream)
        assert (status, "Hello" in json.dumps(body)) == (200, True)
        assert counts(running, "alpha", "beta") == [1, 1]


@STREAMS
@pytest.mark.parametrize("api", ASKED)
async def test_and_so_does_a_fallback(shared: SharedGateways, api: str, stream: bool) -> None:
    settings = config("alpha", fallbacks=["spare"])
    async with shared.row(alpha=[Raw(blocked())], delta=answer("Hello"), config=settings) as running:
        status, body = await asked(running, api, stream=stream)
        assert (status, "Hello" in json.dumps(body)) == (200, True)


@STREAMS
@ORDERED
@pytest.mark.parametrize("api", ASKED)
async def test_no_third_is_asked(shared: SharedGateways, api: str, order: str, stream: bool) -> None:
    settings = config("alpha", "beta", "gamma", order=order, fallbacks=["spare"])
    async with shared.row(alpha=[Raw(blocked())], beta=None, gamma=None, delta=None, config=settings) as running:
        running.prefer("alpha", "beta", "gamma", first_s=5.0)
        refuse(running, "beta", "gamma", "delta")
        await asked(running, api, stream=stream)
        assert sum(counts(running, "alpha", "beta", "gamma", "delta")) == 2


@STREAMS
@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("api", [api for api in ASKED if api != "gemini"])
async def test_alone_it_is_told_as_a_refusal_of_the_clients_api(
    shared: SharedGateways, api: str, reason: str, stream: bool
) -> None:
    async with shared.row(alpha=[Raw(blocked(reason))], config=config("alpha")) as running:
        status, body = await asked(running, api, stream=stream)
        call = await running.call()
        [attempt] = await running.rows(f"select * from attempts where model = '{MODEL + running.suffix}'")
    error = body["error"]
    assert (status, f"The prompt was blocked: {reason}" in error["message"]) == (400, True)
    if api == "messages":
        assert (error["type"], "blocked by content filtering policy" in error["message"]) == (
            "invalid_request_error",
            True,
        )
    else:
        assert error["code"] == ("invalid_request" if api == "interactions" else "invalid_prompt")
    assert (call["status_code"], call["error_kind"]) == (400, "bad_request")
    assert (attempt["outcome"], attempt["error_kind"]) == ("failed", "bad_request")
    assert attempt["error_message"] == f"The prompt was blocked: {reason}"


@pytest.mark.parametrize("reason", REASONS)
async def test_a_client_of_googles_api_reads_googles_own_answer(serve: Serve, reason: str) -> None:
    sent = blocked(reason)
    whole = json.loads(sent[6:])
    path, fields = ASKED["gemini"]
    async with serve(alpha=[Raw(sent)], config=config("alpha")) as running:
        for method, read in (
            ("generateContent", whole),
            ("streamGenerateContent", [whole]),
            ("streamGenerateContent?alt=sse", sent),
        ):
            async with running.http.post(running.url + path.format(model=MODEL, method=method), json=fields) as given:
                body = await given.read()
                told = body if isinstance(read, bytes) else json.loads(body)
                assert (given.status, told) == (200, read)
                assert given.headers["x-holeshot-call-id"]
        calls = await running.rows("select status_code from calls")
        assert [call["status_code"] for call in calls] == [200, 200, 200]


@STREAMS
@pytest.mark.parametrize("api", ASKED)
@pytest.mark.parametrize("end", [said(finish="SAFETY"), blocked()], ids=["a reason", "of the prompt"])
async def test_after_a_text_it_ends_an_answer(shared: SharedGateways, api: str, end: bytes, stream: bool) -> None:
    sent = [Raw(said({"text": "Once"}), token=True), Raw(end)]
    async with shared.row(alpha=sent, beta=answer("Hello"), config=config("alpha", "beta")) as running:
        running.prefer("alpha", "beta")
        status, body = await asked(running, api, stream=stream)
        assert (status, "Once" in json.dumps(body)) == (200, True)
        assert counts(running, "alpha", "beta") == [1, 0]


async def test_it_takes_nobody_out(serve: Serve) -> None:
    async with serve(alpha=[Raw(blocked())], config=config("alpha")) as running:
        for _ in range(8):
            assert (await asked(running, "chat"))[0] == 400
        running["alpha"].script = [Raw(said({"text": "Hello"}, finish="STOP"), token=True)]
        assert (await asked(running, "chat"))[0] == 200


async def test_where_another_fails_otherwise_googles_filter_is_told(serve: Serve) -> None:
    settings = config("alpha", "beta")
    async with serve(
        alpha=[Raw(blocked())], beta=[Status(503, {"error": {"message": "x"}})], config=settings
    ) as running:
        running.prefer("alpha", "beta")
        assert (await asked(running, "chat"))[0] == 400
        assert (await asked(running, "gemini"))[0] == 200
