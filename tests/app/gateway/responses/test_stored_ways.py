"""What providers store is not named by any way into the gateway; what agents send passes as it is."""

import copy
from typing import Any

import aiohttp
import pytest

from providers.simulator import Raw, answer
from tests.app.gateway.access.test_admission import clients, key_of
from tests.app.gateway.apis.test_dialects import MESSAGE_BYTES, speaking
from tests.app.gateway.responses.test_provider_state import NESTED, PATHS, TOOLS, answer_of, body_of
from tests.app.gateway.responses.test_responses_socket import connected
from tests.app.gateway.running_gateway import MODEL, Serve
from tests.unit.api.agent_requests import request

GUARDED: dict[str, Any] = {"providers": {"alpha": speaking("responses")}, **clients(guest={})}


@pytest.mark.parametrize("where", NESTED)
async def test_a_turn_of_a_socket_names_nothing_stored(serve: Serve, where: str) -> None:
    within, at = NESTED[where]
    async with serve(alpha=[Raw(answer_of({}))], config=GUARDED) as running:
        async with connected(running, headers=key_of("guest")) as socket:
            for tool, field, status in TOOLS[::3]:
                fields = within(tool)
                await socket.create(fields.pop("input", "Hi"), **fields)
                said = await socket.event()
                assert (said["type"], said["status"], said["error"]["param"]) == ("error", status, f"{at}.{field}")
        assert running.requests == 0


@pytest.mark.parametrize("where", NESTED)
async def test_what_runs_in_the_background_names_nothing_stored(serve: Serve, where: str) -> None:
    within, at = NESTED[where]
    async with serve(alpha=[Raw(answer_of({}))], config=GUARDED) as running:
        for tool, field, status in TOOLS:
            body = body_of("responses", {**within(tool), "background": True})
            async with running.post(body, path=PATHS["responses"], headers=key_of("guest")) as response:
                said = await response.json()
            assert (response.status, said["error"]["param"]) == (status, f"{at}.{field}")
        assert running.requests == 0


OTHER_PLACES: list[tuple[str, dict[str, Any]]] = [
    ("chat", {"messages": [{"role": "user", "content": "Hi", "tools": [{"vector_store_ids": ["vs_1"]}]}]}),
    ("chat", {"messages": [{"role": "user", "content": "Hi", "attachments": [{"file_id": "file-1"}]}]}),
    ("chat", {"tools": [{"type": "function", "function": {"name": "f"}, "tools": [{"container": "c"}]}]}),
    ("messages", {"tools": [{"name": "f", "input_schema": {}, "tools": [{"vector_store_ids": ["x"]}]}]}),
    ("gemini", {"tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}]}),
    ("responses", {"prompt": {"variables": {"cat": {"type": "input_image", "image_url": "gs://bucket/cat.png"}}}}),
]


@pytest.mark.parametrize(("api", "fields"), OTHER_PLACES, ids=str)
async def test_other_places_name_nothing_stored(serve: Serve, api: str, fields: dict[str, Any]) -> None:
    config = {"providers": {"alpha": speaking(api)}, **clients(guest={})}
    async with serve(alpha=None, config=config) as running:
        async with running.post(body_of(api, fields), path=PATHS[api], headers=key_of("guest")) as response:
            assert response.status == 404, await response.text()
        assert running.requests == 0


@pytest.mark.parametrize(
    ("name", "value"), [("image[0][file_id]", "f"), ("mask", '{"file_id": "f"}'), ("later[containerId]", "cntr_1")]
)
async def test_a_form_names_nothing_stored(serve: Serve, name: str, value: str) -> None:
    config = {"providers": {"alpha": {"apis": ["images"]}}, **clients(guest={})}
    async with serve(alpha=None, config=config) as running:
        form = aiohttp.FormData({"model": MODEL, "prompt": "a cat"})
        form.add_field("image", b"\x89PNG", filename="cat.png", content_type="image/png")
        form.add_field(name, value)
        url = f"{running.url}/v1/images/edits"
        async with running.http.post(url, data=form, headers=key_of("guest")) as response:
            assert response.status == 404, await response.text()
        assert running.requests == 0


@pytest.mark.parametrize("api", ["responses", "messages", "gemini", "chat"])
async def test_what_agents_send_passes_as_it_is(serve: Serve, api: str) -> None:
    scripts = {"responses": [Raw(answer_of({}))], "messages": [Raw(MESSAGE_BYTES)]}
    config = {"providers": {"alpha": speaking(api)}, **clients(guest={})}
    asked = [fields for seed in range(100) for each, fields in [request(seed)] if each == api]
    async with serve(alpha=scripts.get(api, answer("ok")), config=config) as running:
        for fields in asked:
            body = body_of(api, copy.deepcopy(fields))
            async with running.post(body, path=PATHS[api], headers=key_of("guest")) as response:
                said = await response.text()
            assert response.status not in {400, 403, 404}, said
            sent = running["alpha"].received[-1].body
            assert {name: sent[name] for name in fields} == fields
        assert running.requests == len(asked)
