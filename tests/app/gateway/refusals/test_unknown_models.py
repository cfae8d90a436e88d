"""Models that nobody knows with each of autumn 2026's rules: two refusals at most, then known at once, told always."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from providers.simulator import Step
from tests.app.gateway.refusals.test_refused_fields import refused
from tests.app.gateway.refusals.test_unforced import KINDS, text_in
from tests.app.gateway.running_gateway import MODEL
from tests.app.gateway.shared_gateway import SharedGateways
from tests.app.vendors.test_autumn import answered
from tests.app.vendors.test_autumn import said as saying

Json = dict[str, Any]
pytestmark = pytest.mark.asyncio(loop_scope="module")


class Rule(NamedTuple):
    """What a server refuses of a request, in whose words, and the request that meets it."""

    kinds: Sequence[str]  # of servers
    words: str
    asked: Mapping[str, Json]  # by the API of the client
    breaks: Callable[[str], bool]  # a request as JSON without spaces
    is_told: bool = True


def says(*parts: str) -> Callable[[str], bool]:
    """Return whether one of these is in a request."""
    return lambda body: any(part in body for part in parts)


OFF: Mapping[str, Json] = {
    "chat": {"reasoning_effort": "none"},
    "messages": {"thinking": {"type": "disabled"}},
    "responses": {"reasoning": {"effort": "none"}},
    "gemini": {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}},
}
WARM: Mapping[str, Json] = {
    **{api: {"temperature": 0.5} for api in ("chat", "messages", "responses")},
    "gemini": {"generationConfig": {"temperature": 0.5}},
}
UNKEPT: Mapping[str, Json] = {api: {"store": False} for api in ("chat", "responses", "gemini")}
TURN = {"role": "user", "content": "say: well"}
RULES: Mapping[str, Rule] = {
    "no effort of none": Rule(
        ["chat", "responses"],
        "Unsupported value: 'reasoning_effort' does not support 'none' with this model."
        " Supported values are: 'low', 'medium', 'high', 'xhigh', and 'max'.",
        OFF,
        says('"reasoning_effort":"none"', '"effort":"none"'),
    ),
    "thinking that is never off": Rule(
        ["messages"],
        'thinking.type: "disabled" is not supported for this model.',
        OFF,
        says('"thinking":{"type":"disabled"}'),
    ),
    "a budget of 0": Rule(
        ["gemini"],
        "Budget 0 is invalid. This model only works in thinking mode.",
        OFF,
        says('"thinkingBudget":0'),
    ),
    "sampling, as OpenAI says it": Rule(
        ["chat", "responses"],
        "Unsupported parameter: 'temperature' is not supported with this model.",
        WARM,
        says('"temperature"'),
    ),
    "sampling, as Anthropic says it": Rule(
        ["messages"], "temperature: Extra inputs are not permitted", WARM, says('"temperature"')
    ),
    "sampling, as Google says it": Rule(
        ["gemini"],
        "Invalid JSON payload received. Unknown name \"temperature\" at 'generation_config': Cannot find field.",
        WARM,
        says('"temperature"'),
    ),
    "store, in chat": Rule(
        ["chat"], "Unrecognized request argument supplied: store", UNKEPT, says('"store"'), is_told=False
    ),
    "store, at Google": Rule(
        ["gemini"],
        'Invalid JSON payload received. Unknown name "store": Cannot find field.',
        UNKEPT,
        says('"store"'),
        is_told=False,
    ),
    "the role developer": Rule(
        ["chat"],
        "messages[0].role: unknown variant `developer`, expected one of `system`, `user`, `assistant`, `tool`",
        {"chat": {"messages": [{"role": "developer", "content": "Be brief."}, TURN]}},
        says('"role":"developer"'),
        is_told=False,
    ),
    "the role system in messages": Rule(
        ["messages"],
        "messages.1.role: Input should be 'user' or 'assistant'",
        {"messages": {"max_tokens": 99, "messages": [TURN, {"role": "system", "content": "Be brief."}, TURN]}},
        says('"role":"system"'),
    ),
}


class Server:
    """A server of one kind that has one rule."""

    def __init__(self, spoken: str, rule: Rule) -> None:
        self.spoken, self.rule, self.refusals = spoken, rule, 0

    def __call__(self, body: Json) -> Sequence[Step]:
        if self.rule.breaks(json.dumps(body, separators=(",", ":"))):
            self.refusals += 1
            return refused(self.rule.words)
        return text_in(self.spoken, "well")


def settings(spoken: str) -> Json:
    own: Json = {"apis": [spoken]} if spoken in {"chat", "responses"} else {}
    deployments = [{"deployment": "alpha/neue-7", **own}]
    return {
        "providers": {"alpha": dict(KINDS[spoken])},
        "models": {MODEL: {"deployments": deployments, "race": {"mode": "single"}}},
    }


CELLS = [
    pytest.param(rule, spoken, api, id=f"{name}-{spoken}-{api}")
    for name, rule in RULES.items()
    for spoken in rule.kinds
    for api in rule.asked
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("rule", "spoken", "api"), CELLS)
async def test_each_rule_of_an_unknown_model_is_learnt_by_two_refusals_at_most(
    shared: SharedGateways, rule: Rule, spoken: str, api: str, stream: bool
) -> None:
    server = Server(spoken, rule)
    async with shared.row(alpha=None, config=settings(spoken)) as running:
        running["alpha"].answers = server
        for _ in range(3):
            _, headers = await answered(
                running, api, MODEL + running.suffix, {**saying(api), **rule.asked[api]}, stream=stream
            )
            assert server.refusals <= 2
            assert bool(headers.get("x-holeshot-dropped")) or not rule.is_told or not server.refusals


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("spoken", ["chat", "responses"])
async def test_who_forbids_thinking_hears_where_nobody_knows_how_to_say_so(
    shared: SharedGateways, spoken: str, stream: bool
) -> None:
    async with shared.row(alpha=None, config=settings(spoken)) as running:
        running["alpha"].answers = Server(spoken, RULES["sampling, as OpenAI says it"])
        forbidden = {**saying("messages"), **OFF["messages"]}
        _, headers = await answered(running, "messages", MODEL + running.suffix, forbidden, stream=stream)
        assert "thinking" in headers.get("x-holeshot-dropped", "").split(", ")
        _, headers = await answered(running, "messages", MODEL + running.suffix, saying("messages"), stream=stream)
        assert "x-holeshot-dropped" not in headers
