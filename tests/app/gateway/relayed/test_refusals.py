"""What is refused of relayed calls, and in which words."""

from typing import Any

import aiohttp
import msgspec
import openai
import pytest

from tests.app.gateway.relayed.samples import EMBEDDINGS, REFUSED, Open, form, says
from tests.app.gateway.relayed.test_json import RANKING
from tests.app.gateway.running_gateway import MODEL

MISSING = [
    ("/v1/embeddings", {"model": MODEL}, "input"),
    ("/v1/moderations", {"model": MODEL}, "input"),
    ("/v1/rerank", {"model": MODEL, "query": "x"}, "documents"),
    ("/v1/rerank", {"model": MODEL, "documents": ["x"]}, "query"),
    ("/v1/rerank", {"query": "x", "documents": ["x"]}, "model"),
    ("/v1/audio/speech", {"model": MODEL, "input": None}, "input"),
    ("/v1/audio/speech", {"input": "x"}, "model"),
    ("/v1/images/generations", {"model": MODEL}, "prompt"),
    ("/v1/images/edits", {"model": MODEL, "prompt": "x"}, "image"),
    ("/v1/embeddings", {"model": 7, "input": "x"}, "model"),
    ("/v1/images/generations", {"model": MODEL, "prompt": "x", "stream": "yes"}, "stream"),
    ("/v1/embeddings", {"model": MODEL, "input": "x", "race": {"wide": 3}}, "race"),
]


@pytest.mark.parametrize(("path", "body", "param"), MISSING, ids=str)
async def test_what_is_missing_is_named(opened: Open, path: str, body: dict[str, Any], param: str) -> None:
    async with opened() as (running, upstreams):
        async with running.post(body, path=path) as response:
            error = (await response.json())["error"]
        assert (response.status, error["param"], error["type"]) == (400, param, "invalid_request_error")
        assert upstreams["alpha"].received == []
        assert await running.rows("select * from calls") == []


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("multipart/form-data", b"--x\r\n\r\n", "boundary"),
        ("multipart/form-data; boundary=x", b"", "no part"),
        ("multipart/form-data; boundary=x", b"--y\r\n", "no part"),
        ("multipart/form-data; boundary=x", b"--x", "boundary"),
        ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data", "not a complete"),
        ("multipart/form-data; boundary=x", b"--x\r\nA: b\r\n\r\nc\r\n--x--\r\n", "no name"),
        ("multipart/form-data; boundary=x", b"--x--\r\n", "'model' is missing"),
    ],
)
async def test_a_form_that_is_none_is_refused(opened: Open, kind: str, body: bytes, words: str) -> None:
    async with opened() as (running, upstreams):
        path = running.url + "/v1/audio/transcriptions"
        async with running.http.post(path, data=body, headers={"content-type": kind}) as response:
            error = (await response.json())["error"]
        assert (response.status, error["type"]) == (400, "invalid_request_error")
        assert words in error["message"]
        assert upstreams["alpha"].received == []


async def test_a_form_without_a_file_or_with_preferences_in_pieces_is_refused(opened: Open) -> None:
    async with opened() as (running, upstreams):
        without = aiohttp.FormData({"model": MODEL, "x": "y"}, default_to_multipart=True)
        for data, param in (
            (without, "file"),
            (form(**{"provider[only]": "beta"}), "provider"),
            (form(race="x"), "race"),
        ):
            async with running.http.post(running.url + "/v1/audio/transcriptions", data=data) as response:
                assert (response.status, (await response.json())["error"]["param"]) == (400, param)
        assert upstreams["alpha"].received == []


async def test_a_field_of_a_form_that_is_nested_without_end_is_refused(opened: Open) -> None:
    deep = '{"x":' + "[" * 30_000 + "]" * 30_000 + "}"
    async with opened() as (running, upstreams):
        for data in (form(provider=deep), form(race=deep), form(models=deep)):
            async with running.http.post(running.url + "/v1/audio/transcriptions", data=data) as response:
                assert (response.status, (await response.json())["error"]["type"]) == (400, "invalid_request_error")
        assert upstreams["alpha"].received == []


async def test_each_api_takes_its_own_type_of_body_only(opened: Open) -> None:
    async with opened() as (running, upstreams):
        async with running.post({"model": MODEL, "input": "x"}, path="/v1/audio/transcriptions") as response:
            assert (response.status, (await response.json())["error"]["code"]) == (415, "unsupported_media_type")
        async with running.http.post(running.url + "/v1/embeddings", data=form()) as response:
            assert response.status == 415
        assert upstreams["alpha"].received == []


async def test_a_file_over_the_limit_is_413(opened: Open) -> None:
    path = "/v1/audio/transcriptions"
    async with (
        opened(config={"max_body_mb": 0.005}) as (running, _),
        running.http.post(running.url + path, data=form()) as response,
    ):
        assert (response.status, (await response.json())["error"]["code"]) == (413, "body_too_large")


async def test_a_web_page_cannot_upload(opened: Open) -> None:
    async with opened() as (running, upstreams):
        headers = {"origin": "https://evil.example"}
        async with running.http.post(
            running.url + "/v1/audio/transcriptions", data=form(), headers=headers
        ) as response:
            assert response.status == 403
        assert upstreams["alpha"].received == []


async def test_a_model_nobody_knows_is_404(opened: Open) -> None:
    async with opened() as (running, _):
        with pytest.raises(openai.NotFoundError) as caught:
            await running.sdk.audio.speech.create(model="lama", voice="alloy", input="x")
        assert caught.value.code == "model_not_found"


async def test_a_model_without_the_api_says_why_for_each_deployment(opened: Open) -> None:
    config = {"providers": {"alpha": {"apis": ["chat"]}, "beta": {"apis": ["chat", "embeddings"]}}}
    async with opened(alpha=[], beta=[], config=config) as (running, upstreams):
        with pytest.raises(openai.BadRequestError) as caught:
            await running.sdk.images.generate(model=MODEL, prompt="a cat")
        assert caught.value.code == "unsupported_by_deployments"
        assert "alpha/m answers chat only" in str(caught.value)
        assert "beta/m answers chat, embeddings only" in str(caught.value)
        headers = {"x-holeshot-plan": "1"}
        async with running.post({"model": MODEL, "input": "x"}, path="/v1/embeddings", headers=headers) as response:
            assert response.headers["x-holeshot-provider"] == "beta"
        plan = msgspec.json.decode(response.headers["x-holeshot-plan"])
        assert [launch["deployment"] for launch in plan["launches"]] == ["beta/m"]
        assert plan["excluded"] == {"alpha/m": "answers chat only"}
        assert upstreams["alpha"].received == []


async def test_what_the_provider_says_of_a_wrong_request_comes_back_in_its_words(opened: Open) -> None:
    async with opened(alpha=[says(REFUSED, status=400)]) as (running, _):
        with pytest.raises(openai.BadRequestError) as caught:
            await running.sdk.audio.speech.create(model=MODEL, voice="nobody", input="x")
        assert caught.value.param == "voice"
        call = await running.call()
        assert (call["status_code"], call["endpoint"]) == (400, "audio.speech")


async def test_a_rank_of_which_a_field_is_refused_is_asked_again_without_it_and_the_next_one_at_once(
    opened: Open,
) -> None:
    refused = {"error": {"message": "Unrecognized request argument supplied: user"}}
    body = {"model": MODEL, "query": "horse", "documents": ["cow", "horse"], "user": "somebody"}
    async with opened(alpha=[says(refused, status=400), says(RANKING)]) as (running, upstreams):
        for launched in ("2", "1"):
            async with running.post(body, path="/v1/rerank") as response:
                assert response.status == 200, await response.text()
                assert response.headers["x-holeshot-launched"] == launched
        sent = ["user" in each.body for each in upstreams["alpha"].received]
        assert sent == [True, False, False]
        rows = await running.rows("select role, error_kind, sends from attempts order by call_id, number")
        assert [tuple(each.values()) for each in rows] == [
            ("primary", "form_refused", 1),
            ("form", None, 1),
            ("primary", None, 1),
        ]


@pytest.mark.parametrize(
    ("path", "fields", "answer"),
    [
        ("/v1/embeddings", {"input": "one"}, EMBEDDINGS),
        ("/v1/rerank", {"query": "horse", "documents": ["cow", "horse"]}, RANKING),
    ],
    ids=["vectors", "ranks"],
)
async def test_while_a_key_is_replaced_the_one_that_is_taken_answers(
    opened: Open, path: str, fields: dict[str, Any], answer: Any
) -> None:
    admitted = {"former"}
    config = {"providers": {"alpha": {"api_key": "former"}}}
    async with opened(alpha=[says(answer)], config=config) as (running, upstreams):
        upstreams["alpha"].admits = admitted

        async def launched() -> str:
            async with running.post({"model": MODEL, **fields}, path=path) as response:
                assert response.status == 200, await response.text()
                return str(response.headers["x-holeshot-launched"])

        assert await launched() == "1"
        running.replace_key("alpha", "new")
        assert await launched() == "2"  # the provider does not know the new one yet
        admitted ^= {"former", "new"}
        assert await launched() == "2"
        assert await launched() == "1"
        keys = [each.key for each in upstreams["alpha"].received]
        assert keys == ["former", "new", "former", "former", "new", "new"]
        rows = await running.rows("select role, error_kind, sends from attempts order by call_id, number")
        alone, refused = [("primary", None, 1)], [("primary", "key_refused", 1), ("key", None, 1)]
        assert [tuple(each.values()) for each in rows] == [*alone, *refused, *refused, *alone]
