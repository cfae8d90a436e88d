"""What a vendor keeps of requests: Google is told not to, a client's own wish goes through, and its API is as it was.

The rules are in providers/vendors/vendors.toml (``keeps``), with the page and the day.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from gateway.settings import ProviderSettings, keeps_requests, says_store
from providers import load_catalog
from providers.simulator import Raw, Status, Step, answer
from tests.app.gateway.access.test_admission import clients, key_of
from tests.app.gateway.apis.test_dialects import providers, speaking
from tests.app.gateway.apis.test_gemini import ASK, GENERATE, TEXT_BYTES
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve

GOOGLE = speaking("gemini", kind="gemini")
IN_CHAT = {"preset": "gemini"}
QUESTION = [{"role": "user", "content": "Hi"}]
ANSWERS: Mapping[str, Sequence[Step]] = {"google": [Raw(TEXT_BYTES, token=True)], "gemini": answer("Hello")}
KINDS = {"google": GOOGLE, "gemini": IN_CHAT}
SAYS_NOTHING: Mapping[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": QUESTION}),
    "messages": ("/v1/messages", {"max_tokens": 50, "messages": QUESTION}),
    "responses": ("/v1/responses", {"input": "Hi"}),
}


async def sent(running: RunningGateway, path: str, body: Mapping[str, Any], name: str = "alpha") -> Mapping[str, Any]:
    """Return the body that the provider was sent last, after a call that was answered."""
    async with running.post({"model": MODEL, **body}, path=path) as response:
        assert response.status == 200, await response.text()
    received: Mapping[str, Any] = running[name].received[-1].body
    return received


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("api", SAYS_NOTHING)
@pytest.mark.parametrize("kind", KINDS)
async def test_google_is_told_to_keep_nothing_of_what_is_translated(
    serve: Serve, kind: str, api: str, stream: bool
) -> None:
    path, body = SAYS_NOTHING[api]
    async with serve(alpha=ANSWERS[kind], **providers(alpha=KINDS[kind])) as running:
        assert (await sent(running, path, {**body, "stream": stream}))["store"] is False


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("store", [True, False])
async def test_a_clients_own_value_goes_through(serve: Serve, kind: str, store: bool) -> None:
    async with serve(alpha=ANSWERS[kind], **providers(alpha=KINDS[kind])) as running:
        assert (await sent(running, *_asking("chat", store)))["store"] is store
        assert (await sent(running, GENERATE, {**ASK, "store": store}))["store"] is store


def _asking(api: str, store: bool | None) -> tuple[str, dict[str, Any]]:
    path, body = SAYS_NOTHING[api]
    return path, {**body, "store": store}


async def test_null_says_nothing(serve: Serve) -> None:
    async with serve(alpha=ANSWERS["gemini"], **providers(alpha=IN_CHAT)) as running:
        assert (await sent(running, *_asking("chat", None)))["store"] is False


async def test_in_googles_own_api_a_request_passes_as_it_is_unless_the_operator_says_so(serve: Serve) -> None:
    async with serve(alpha=ANSWERS["google"], **providers(alpha=GOOGLE)) as running:
        assert "store" not in await sent(running, GENERATE, ASK)
    async with serve(alpha=ANSWERS["google"], **providers(alpha={**GOOGLE, "store": False})) as running:
        assert (await sent(running, GENERATE, ASK))["store"] is False
        assert (await sent(running, GENERATE, {**ASK, "store": True}))["store"] is True


async def test_an_operator_may_have_google_keep_what_says_nothing(serve: Serve) -> None:
    async with serve(alpha=ANSWERS["google"], **providers(alpha={**GOOGLE, "store": True})) as running:
        assert (await sent(running, *SAYS_NOTHING["messages"]))["store"] is True
        assert (await sent(running, *_asking("chat", store=False)))["store"] is False


@pytest.mark.parametrize("provider", [{}, {"preset": "openai"}], ids=["own", "openai"])
async def test_servers_that_keep_nothing_by_default_or_do_not_know_the_field_are_not_sent_it(
    serve: Serve, provider: Mapping[str, Any]
) -> None:
    async with serve(alpha=answer("Hello"), **providers(alpha={**provider, "apis": ["chat"]})) as running:
        for api in ("chat", "messages"):
            assert "store" not in await sent(running, *SAYS_NOTHING[api])


def test_vertex_which_does_not_know_the_field_is_not_sent_it() -> None:
    for host in ("aiplatform.googleapis.com", "europe-west4-aiplatform.googleapis.com"):
        at_vertex = ProviderSettings(kind="gemini", base_url=f"https://{host}/v1/publishers/google")
        assert not keeps_requests(at_vertex, None)
    for vendor in ("vertex_ai", "vertex_openai"):
        assert says_store(ProviderSettings(), load_catalog()[vendor])[0] is None
    assert keeps_requests(ProviderSettings(kind="gemini", base_url="https://proxy.example"), None)


def refusing(body: Any) -> Sequence[Step]:
    """Refuse the field, as a server of Google's that is older."""
    if "store" in body:
        said = 'Invalid JSON payload received. Unknown name "store": Cannot find field.'
        return [Status(400, {"error": {"code": 400, "message": said, "status": "INVALID_ARGUMENT"}})]
    return ANSWERS["google"]


def refusing_in_chat(body: Any) -> Sequence[Step]:
    """Refuse it as Google's chat completions did in spring, in a list of one."""
    if "store" in body:
        said = 'Invalid JSON payload received. Unknown name "store": Cannot find field.'
        return [Status(400, [{"error": {"code": 400, "message": said, "status": "INVALID_ARGUMENT"}}])]
    return ANSWERS["gemini"]


@pytest.mark.parametrize("kind", KINDS)
async def test_an_older_server_is_asked_without_it_from_the_second_time_on(serve: Serve, kind: str) -> None:
    async with serve(alpha=None, **providers(alpha=KINDS[kind])) as running:
        running["alpha"].answers = refusing if kind == "google" else refusing_in_chat
        for times in (2, 3):
            async with running.post({"model": MODEL, "messages": QUESTION}) as response:
                assert (response.status, response.headers.get("x-holeshot-dropped")) == (200, None)
            assert len(running["alpha"].received) == times


async def test_a_client_that_asked_for_it_is_told_and_another_deployment_goes_first(serve: Serve) -> None:
    asked = {"model": MODEL, "messages": QUESTION, "store": False}
    told = "x-holeshot-dropped"
    async with serve(alpha=None, beta=ANSWERS["google"], **providers(alpha=GOOGLE, beta=GOOGLE)) as running:
        running["alpha"].answers = refusing
        for _ in range(2):
            async with running.post({**asked, "model": "alpha/m"}) as response:
                assert (response.status, response.headers.get(told)) == (200, "store")
        refused = len(running["alpha"].received)
        running.prefer("alpha", "beta")
        for _ in range(3):
            async with running.post(asked) as response:
                assert (response.status, response.headers.get(told)) == (200, None)
        assert (len(running["alpha"].received), len(running["beta"].received)) == (refused, 3)


async def test_a_clients_data_policy_forbids_that_google_is_told_to_keep_it(serve: Serve) -> None:
    config = {**clients(plain={"require": {"zdr": True}}), **providers(alpha=GOOGLE)["config"]}
    deployments = {"models": {MODEL: {"deployments": [{"deployment": "alpha/m", "zdr": True}]}}}
    async with serve(alpha=ANSWERS["google"], config={**config, **deployments}) as running:
        asked = {"model": MODEL, "messages": QUESTION}
        async with running.post({**asked, "store": True}, headers=key_of("plain")) as response:
            assert response.status == 400
            assert "data policy is zdr" in await response.text()
        async with running.post(asked, headers=key_of("plain")) as response:
            assert response.status == 200
        assert [one.body["store"] for one in running["alpha"].received] == [False]


async def test_that_google_is_told_so_makes_no_deployment_one_that_stores_nothing(serve: Serve) -> None:
    asked = {"model": MODEL, "messages": QUESTION, "provider": {"zdr": True}}
    config = providers(alpha={**GOOGLE, "store": False})
    async with serve(alpha=ANSWERS["google"], **config) as running, running.post(asked) as response:
        assert response.status == 400
        assert "zero data retention" in await response.text()
