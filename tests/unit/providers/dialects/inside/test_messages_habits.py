"""What models take that are asked in Messages, told by their names."""

from typing import Any

import msgspec
import pytest

from providers.dialects import CHAT, GEMINI, MESSAGES, Dialect, Habits, Seal, rendered
from providers.dialects.messages.thoughts import habits_of
from providers.models import traits_of


def lost(model: str, **fields: Any) -> list[str]:
    asked = {"model": model, "messages": [{"role": "user", "content": "Hi"}], **fields}
    raw = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in asked.items()}
    wording = rendered(raw, CHAT, MESSAGES, habits_of(traits_of(model), None, Habits()))
    said = wording.fields.keys() & fields.keys()
    assert said == fields.keys() - {loss.field for loss in wording.losses}
    return [loss.field for loss in wording.losses]


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("claude-3-5-haiku-20241022", []),
        ("claude-sonnet-4-20250514", []),
        ("claude-opus-4-1-20250805", ["top_p"]),
        ("claude-haiku-4-5", ["top_p"]),
        ("anthropic.claude-sonnet-4-6-v1:0", ["top_p"]),
        ("claude-opus-4-7", ["temperature", "top_p", "top_k"]),
        ("claude-sonnet-5", ["temperature", "top_p", "top_k"]),
        ("deepseek-chat", []),
    ],
)
def test_a_model_is_sent_as_much_of_how_to_sample_as_it_takes(model: str, fields: list[str]) -> None:
    assert lost(model, temperature=0.5, top_p=0.9, top_k=5) == fields


def test_a_top_p_alone_is_taken_by_models_that_take_one() -> None:
    assert lost("claude-sonnet-4-6", top_p=0.9) == []


def test_a_claude_that_does_not_think_is_asked_for_no_thoughts() -> None:
    raw = {"model": b'"c"', "reasoning_effort": b'"high"', "messages": b'[{"role":"user","content":"Hi"}]'}
    fields = {name: msgspec.Raw(value) for name, value in raw.items()}
    wording = rendered(fields, CHAT, MESSAGES, habits_of(traits_of("claude-3-5-haiku"), None, Habits(thinks=False)))
    assert "thinking" not in wording.fields
    assert [(loss.field, loss.hint) for loss in wording.losses] == [("reasoning_effort", True)]


@pytest.mark.parametrize(("longest", "limit"), [(64_000, 64_000), (None, 4096 + 2048)])
def test_what_is_thought_leads_to_no_limit_that_a_model_refuses(longest: int | None, limit: int) -> None:
    asked = {"model": "c", "messages": [{"role": "user", "content": "Hi"}], "reasoning_effort": "medium"}
    fields = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in asked.items()}
    wording = rendered(fields, CHAT, MESSAGES, habits_of(traits_of("claude-sonnet-4-5"), longest, Habits()))
    assert msgspec.json.decode(wording.fields["max_tokens"]) == limit
    assert msgspec.json.decode(wording.fields["thinking"]) == {"type": "enabled", "budget_tokens": 2048}
    assert wording.losses == ()


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("claude-sonnet-5", {"thinking": {"type": "disabled"}}),
        ("claude-fable-5", {"output_config": {"effort": "low"}}),
        ("claude-mythos-preview", {"output_config": {"effort": "low"}}),
    ],
)
def test_a_claude_that_cannot_stop_thinking_thinks_its_least(model: str, said: dict[str, Any]) -> None:
    asked = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "reasoning_effort": "none"}
    fields = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in asked.items()}
    wording = rendered(fields, CHAT, MESSAGES, habits_of(traits_of(model), None, Habits()))
    told = {name: msgspec.json.decode(value) for name, value in wording.fields.items()}
    assert {name: told[name] for name in ("thinking", "output_config") if name in told} == said
    hints = [] if "thinking" in said else [("reasoning_effort", True)]
    assert [(loss.field, loss.hint) for loss in wording.losses] == hints


KNOWN_BETTER = {"beyond", "may_think", "signs", "takes_none"}  # by these dialects, of all models or by their traits
USUAL, OTHERS = Habits(), {"beyond": frozenset({"results"}), "seal": Seal(b"secret", "acme"), "takes_signed": "google"}


@pytest.mark.parametrize("dialect", [MESSAGES, GEMINI], ids=lambda dialect: dialect.name)
def test_no_habit_is_forgotten_where_a_dialect_has_habits_of_its_own(dialect: Dialect) -> None:
    assert dialect.pivoting is not None
    habits_in = dialect.pivoting.habits_of
    assert habits_in is not None

    def own(known: Habits) -> Habits:
        return habits_in(traits_of("m"), None, known)

    other = {name: OTHERS.get(name, not getattr(USUAL, name)) for name in Habits.__struct_fields__}
    same = {name for name in other if own(msgspec.structs.replace(USUAL, **{name: other[name]})) == own(USUAL)}
    assert same == KNOWN_BETTER
