"""Values that ask for nothing, of any field: left out where a server or an API does not take them; nobody is told."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.app.gateway.apis.test_dialects import speaking
from tests.app.gateway.refusals.test_refused_fields import ANSWERS, QUESTION, VENDORS, refusing, told
from tests.app.gateway.shared_gateway import SharedGateways

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Values that ask for nothing, as clients send them, and words of servers that refuse them by the name or by the value.
NEUTRAL: list[tuple[str, Any]] = [
    *[(name, []) for name in ("stop_token_ids", "stop", "documents", "a_new_field")],
    *[(name, {}) for name in ("logit_bias", "metadata", "mm_processor_kwargs")],
    *[(name, "") for name in ("stop", "user", "suffix")],
    *[("min_tokens", 0), ("presence_penalty", 0), ("n", 1), ("logprobs", False), ("response_format", {"type": "text"})],
]
OF_NEUTRAL: Mapping[str, tuple[int, Any]] = {
    **{name: VENDORS[name] for name in ("OpenAI", "Groq", "Mistral")},
    "Mistral, of a value": (
        422,
        {
            "detail": [
                {"type": "too_short", "loc": ["body", "{}"], "msg": "List should have at least 1 item after validation"}
            ]
        },
    ),
    "an own server, of a value": (400, "Invalid value for '{}': it must not be empty"),
}


@pytest.mark.parametrize("vendor", OF_NEUTRAL)
async def test_a_value_that_asks_for_nothing_is_left_out_where_a_server_refuses_it(
    shared: SharedGateways, vendor: str
) -> None:
    status, said = OF_NEUTRAL[vendor]
    for name, value in NEUTRAL:
        async with shared.row(alpha=None) as running:
            running["alpha"].answers = refusing(name, status=status, said=said)
            for sendings in (2, 3):
                assert (name, *await told(running, {"messages": QUESTION, name: value})) == (name, 200, None)
                assert (name, len(running.received("alpha"))) == (name, sendings)


async def test_a_value_that_asks_for_nothing_keeps_no_other_api_out(shared: SharedGateways) -> None:
    for api in ("messages", "gemini", "responses"):
        async with shared.row(alpha=None, config={"providers": {"alpha": speaking(api)}}) as running:
            running["alpha"].answers = lambda _, api=api: ANSWERS[api]
            for name, value in NEUTRAL:
                assert (name, *await told(running, {"messages": QUESTION, name: value})) == (name, 200, None)
