"""Two hundred prompts of developers that quote vendors' errors, at vendors that quote these prompts."""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from random import Random
from typing import Any

from providers.simulator import Raw, Status, Step, answer
from tests.app.gateway.key_desk import bearer, sha256
from tests.app.gateway.keys.test_weak_keys import FAIRS, WRITTEN
from tests.app.gateway.refusals.test_refused_for_one import LONGEST, ROOMS
from tests.app.gateway.running_gateway import MODEL, Serve
from tests.unit.providers.refusals.inside.test_refusals import CASES
from tests.unit.providers.refusals.test_accounts import SPENT

NUMBER = 200
KEYS = ("ann", "bob", "root", "fair")
CONFIG = {
    "clients": {
        name: {"key_sha256": sha256(f"hs-{name}"), **({"role": "admin"} if name == "root" else {})} for name in KEYS
    },
    "models": {MODEL: {"deployments": [{"deployment": "alpha/m", "drop_params": True}], "race": {"mode": "single"}}},
}


def words(said: Any) -> str:
    """Return a refusal as a developer pastes it: its message, or all of it."""
    return said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)


ERRORS = [
    *WRITTEN,
    *LONGEST.values(),
    *ROOMS.values(),
    *(words(case.said) for case in CASES),
    *(words(said) for _, said in SPENT.values()),
]
SENTENCES = [
    "{}",
    "Why do I get this?\n\n{}\n\nAnd what is to be done?",
    "My log says `{}`. Write a regular expression for it.",
    "openai.BadRequestError: Error code: 400 - {{'error': {{'message': \"{}\", 'type': 'invalid_request_error'}}}}",
    '```json\n{{"error": {{"message": "{}", "code": null}}}}\n```\nExplain it to a child.',
    "Translate into German: „{}“",
]  # fmt: skip


def turns(**last: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "Hi"}, last, {"role": "user", "content": "And now?"}]}


def tool(**function: Any) -> dict[str, Any]:
    return {**turns(role="assistant", content="Yes?"), "tools": [{"type": "function", "function": function}]}


def called(text: str) -> list[Any]:
    return [{"id": "c", "type": "function", "function": {"name": "f", "arguments": json.dumps({"q": text})}}]


PLACES: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "a message": lambda text: {"messages": [{"role": "user", "content": text}]},
    "a part": lambda text: turns(role="user", content=[{"type": "text", "text": text}]),
    "a system prompt": lambda text: {"messages": [{"role": "system", "content": text}, *turns()["messages"][::2]]},
    "an answer": lambda text: turns(role="assistant", content=text),
    "arguments": lambda text: {
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": None, "tool_calls": called(text)},
            {"role": "tool", "tool_call_id": "c", "content": "done"},
        ]
    },
    "a result": lambda text: {
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": None, "tool_calls": called("x")},
            {"role": "tool", "tool_call_id": "c", "content": text},
        ]
    },
    "a description": lambda text: tool(name="f", description=text, parameters={"type": "object"}),
    "a schema": lambda text: tool(name="f", parameters={"type": "object", "properties": {"q": {"enum": [text]}}}),
}
# How vendors quote what they cannot take.
ECHOES: Sequence[Callable[[str], Any]] = [
    lambda text: f"Invalid value: '{text}'.",
    lambda text: f"Could not process the request: {text}",
    lambda text: f"Template error while rendering {text!r}",
    lambda text: f"Failed to parse near {json.dumps(text[:120])}…",
    lambda text: f"Failed to parse near: {text[:120]}…",
    lambda text: f"Invalid JSON in {json.dumps(text)} at line 1 column 7",
    lambda text: str([{"type": "string_type", "loc": ("body", "messages"), "msg": "Wrong", "input": text}]),
]


def drawn() -> list[tuple[str, dict[str, Any], Any]]:
    """Return texts, the fields they are sent in, and what the vendor then says."""
    random = Random(92)
    every = list(product(ERRORS, SENTENCES, PLACES.values(), ECHOES))
    found = []
    for error, sentence, place, echo in random.sample(every, NUMBER):
        text = sentence.format(error)
        found.append((text, place(text), echo(text)))
    return found


async def test_prompts_that_quote_errors_teach_nothing_and_keep_nobody_out_though_vendors_quote_them(
    serve: Serve,
) -> None:
    async with serve(alpha=None, in_one_minute=True, config=CONFIG) as running:

        async def asked(name: str, **fields: Any) -> Any:
            async with running.chat(bearer(f"hs-{name}"), **fields) as response:
                return response.status, await response.text()

        async def looked() -> Any:
            async with running.get("/admin/facts", headers=bearer("hs-root")) as response:
                facts = (await response.json())["data"]
            return facts, {row.state for row in running.gateway.steering.leaderboard(MODEL).deployments}

        assert (await asked("fair", **FAIRS))[0] == 200
        before = running["alpha"].received[-1].body
        for number, (text, fields, said) in enumerate(drawn()):
            error = {"error": {"message": said, "type": "invalid_request_error", "code": None}}
            refusal: list[Step] = [Status(400, error)]
            if number % 3 == 2:
                refusal = [Raw(b"data: " + json.dumps(error).encode() + b"\n\n")]
            running["alpha"].script = refusal
            for name in ("ann", "bob"):  # what two have met would hold for all
                status, _ = await asked(name, stream=number % 2 == 0, **fields)
                assert status >= 400 or number % 3 == 2, (text, status)
            assert await looked() == ([], {"ok"}), (text, said)
        running["alpha"].script = answer("well")
        for name in ("fair", "ann", "bob"):
            assert (await asked(name, **FAIRS))[0] == 200
            assert running["alpha"].received[-1].body == before
