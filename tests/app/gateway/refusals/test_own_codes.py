"""Errors in a body with status 200: alone they are told by their meaning, and beside others these answer."""

from collections.abc import Mapping
from typing import Any

import pytest

from providers import Meaning
from providers.simulator import Status, answer
from tests.app.gateway.refusals.test_meanings import ASKED, asked
from tests.app.gateway.refusals.test_told_meanings import STATUS, check
from tests.app.gateway.running_gateway import MODEL, single
from tests.app.gateway.shared_gateway import SharedGateways

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOLD: Mapping[str, tuple[Meaning, dict[str, Any]]] = {
    "Baidu, limited": (Meaning.RATE, {"error_code": 18, "error_msg": "Open api qps request limit reached"}),
    "MiniMax, filter": (Meaning.CONTENT, {"base_resp": {"status_code": 1026, "status_msg": "input new_sensitive"}}),
    "Zhipu, gone": (Meaning.GONE, {"error": {"code": "1211", "message": "模型不存在,请检查模型代码。"}}),
    "Alibaba, unpaid": (Meaning.UNPAID, {"code": "Arrearage", "message": "Access denied.", "request_id": "r"}),
    "Tencent, limited": (
        Meaning.RATE,
        {"Response": {"Error": {"Code": "RequestLimitExceeded", "Message": "请求频率超限"}, "RequestId": "r"}},
    ),
}
TOO_LONG = {"error_code": 336103, "error_msg": "Prompt tokens too long"}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", ASKED)
@pytest.mark.parametrize("name", TOLD)
async def test_alone_it_is_told_by_its_meaning(shared: SharedGateways, name: str, api: str, *, stream: bool) -> None:
    meaning, body = TOLD[name]
    async with shared.row(alpha=[Status(200, body)], config=single()) as running:
        status, told = await asked(running, api, stream=stream)
        assert status == STATUS[meaning], told
        check(meaning, api, told["error"])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_prompt_that_is_too_long_is_told_so(shared: SharedGateways, *, stream: bool) -> None:
    async with shared.row(alpha=[Status(200, TOO_LONG)], config=single()) as running:
        status, told = await asked(running, "responses", stream=stream)
        assert (status, told["error"]["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("body", [*(body for _, body in TOLD.values()), TOO_LONG], ids=[*TOLD, "Baidu, too long"])
async def test_another_deployment_answers(shared: SharedGateways, body: dict[str, Any], *, stream: bool) -> None:
    config = {"models": {MODEL: {"race": {"mode": "single"}}}}
    async with shared.row(alpha=[Status(200, body)], beta=answer("well"), config=config) as running:
        running.prefer("alpha", "beta")
        status, _ = await asked(running, "chat", stream=stream)
        assert status == 200
