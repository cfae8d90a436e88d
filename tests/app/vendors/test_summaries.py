"""Conversations of Responses that are summed up at one vendor and go on at another: nothing of them is refused."""

from typing import Any

import pytest

from strict_vendors import Served
from tests.app.gateway.running_gateway import RunningGateway
from tests.app.vendors import test_every_pair

Json = dict[str, Any]
gateway = test_every_pair.gateway
TOOL = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}
OWN = {"openai"}  # it compacts, and reads nothing but what it made, which passes as it is
# Converse cannot forbid tools that were called before, Ollama none; their stand-ins call any that is offered.
CALLING = {"bedrock", "ollama"}
NAMES = [name for name in test_every_pair.VENDORS if name not in CALLING]


async def respond(running: RunningGateway, model: str, items: list[Json], path: str = "") -> list[Json]:
    asked: Json = {"model": model, "input": items, "instructions": "Be brief."}
    if not path:
        asked |= {"tools": [TOOL], "store": False, "include": ["reasoning.encrypted_content"]}
    async with running.post(asked, path=f"/v1/responses{path}") as response:
        assert response.status == 200, (model, path, await response.text())
        return list((await response.json())["output"])


@pytest.mark.parametrize("path", ["", "/compact"])
async def test_a_conversation_goes_on_at_any_vendor_after_its_summary(
    gateway: tuple[RunningGateway, dict[str, Served]], path: str
) -> None:
    running, vendors = gateway
    wrong = []
    for number, one in enumerate(NAMES):
        users: list[Json] = [{"role": "user", "content": "weather?"}]
        answer = await respond(running, one, users)
        calls = [item["call_id"] for item in answer if item["type"] == "function_call"]
        results = [{"type": "function_call_output", "call_id": call, "output": "rain"} for call in calls]
        assert results, one
        trigger = [] if path else [{"type": "compaction_trigger"}]
        *said, item = await respond(running, one, [*users, *answer, *results, *trigger], path)
        assert item["type"] == "compaction", (one, item)
        assert [each["role"] for each in said] == (["user"] if path else [])
        is_own = not item["encrypted_content"].startswith("holeshot-summary-v1:")
        assert is_own is (one in OWN), one
        others = [NAMES[(number + step) % len(NAMES)] for step in (1, 4, 7)]
        for other in [one] if is_own else [one, *others, *sorted(CALLING)]:
            await respond(running, other, [*said, item, {"role": "user", "content": "Go on."}])
        for name, vendor in vendors.items():
            wrong += [
                f"{one}: {name} {each.rule}: {each.message[:200]}"
                for each in vendor.refusals
                if each.rule not in test_every_pair.NOT_OF_HISTORIES
            ]
            vendor.refusals.clear()
    assert not wrong, "\n".join(wrong)
