"""How models that speak Messages think, how they are told to think, and which thoughts each of them may read."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from providers.dialects.dialect import Habits, with_own
from providers.dialects.messages.fields import CANNOT_THINK_ON, budget_of_effort, effort_of_budget, lacks_thoughts
from providers.dialects.messages.request_from_chat import DEFAULT_MAX_TOKENS
from providers.dialects.messages.turns_to_chat import A_BILL, A_BILLS_BEGIN, is_bill
from providers.dialects.reading import RawObject, object_at, objects_at, text_at
from providers.dialects.unshown import UnshownEntry
from providers.dialects.wording import (
    ANTHROPIC,
    BOUND_REASON,
    CANNOT_STOP_THINKING,
    GOOGLES,
    NOT_SIGNED,
    OTHERS_REASON,
    PLAIN,
    Fields,
    Loss,
    Wording,
    bound_reasoning,
    decoded,
    googles,
    is_string,
    raw_json,
    signer_of,
)
from providers.models import LeastThinking, Sampling, Traits
from providers.refusals import UNREADABLE

# How models that speak Messages differ: limits, ways of thinking, sampling parameters.


class MessagesHabits(Habits, frozen=True):
    """How one model must be asked in Messages."""

    max_tokens: int = DEFAULT_MAX_TOKENS  # the limit of an answer for clients that set none
    is_longest: bool = False  # the model refuses a higher limit
    adaptive_thinking: bool = True  # the model itself decides how long to think, and takes an effort
    takes_effort: bool = True
    takes_budget: bool = True
    least_thinking: LeastThinking = "off"  # what becomes of a request that forbids thinking
    sampling: Sampling = "free"


def habits_of(traits: Traits, max_output_tokens: int | None, known: Habits) -> MessagesHabits:
    """Return the habits of a model, whose answers have ``max_output_tokens`` at most (None: unknown)."""
    return with_own(
        known,
        MessagesHabits,
        signs=traits.signs,
        takes_none=False,
        may_think=False,
        beyond=frozenset(),  # ``Pivoting`` says this of all models alike
        max_tokens=max_output_tokens or DEFAULT_MAX_TOKENS,
        is_longest=max_output_tokens is not None,
        adaptive_thinking=traits.adaptive,
        takes_effort=traits.takes_effort,
        takes_budget=traits.takes_budget,
        least_thinking=traits.least_thinking,
        sampling=traits.sampling,
    )


def of_messages(habits: Habits) -> MessagesHabits:
    """Return ``habits`` as those of Messages; unknown habits of a model are those of the newest models."""
    return habits if isinstance(habits, MessagesHabits) else MessagesHabits(thinks=habits.thinks)


# Thinking blocks that the asked API did not sign: a request with such a block is refused. Where do they come from?
# Reasoning of a model without signatures reaches a client as thinking with an empty signature, or without a signature
# if a server of one's own sent it. The client sends these blocks back in the next request, which may go to Anthropic.
# And blocks that Anthropic signed may go to another provider that speaks Messages.

_EMPTY = (b'"signature":""', b'"signature": ""')
_UNSIGNED = (*_EMPTY, b'"signature":null', b'"signature": null')
_ANY = Habits()
_THOUGHT, _SIGNATURE = b'"thinking":', b'"signature":'
_THOUGHTS = frozenset({"thinking", "redacted_thinking"})
_NO_TEXT = msgspec.Raw(b'""')
_NO_DATA = frozenset({b"", b'""', b"null"})


def without_unsigned_thoughts(fields: Mapping[str, msgspec.Raw], habits: Habits = _ANY) -> Wording:
    """Return a Messages request without thinking blocks that have an empty signature, or Google's; else unchanged.

    For a model that signs, blocks without a signature are left out too. Other models, on servers of one's own, may need
    such blocks back. Models that take unsigned thoughts get all thoughts in words, by any model, and no others.

    Raises:
        Malformed: the conversation is not valid in Messages; only checked where such blocks seem to exist.

    """
    conversation = bytes(fields.get("messages", b""))
    if habits.takes_unsigned and not habits.signs:
        return _in_words(fields, conversation)
    is_whole = not any(each in conversation for each in (_UNSIGNED if habits.signs else _EMPTY))
    is_whole = is_whole and GOOGLES not in conversation and b'"redacted_thinking"' not in conversation
    if is_whole and not (habits.signs and _lacks_signatures(conversation)):
        return _thinking_on(fields, conversation, habits)
    refused = NOT_SIGNED | {b"", b"null"} if habits.signs else NOT_SIGNED
    left = _without_thoughts(
        fields,
        lambda kind, block: (
            (
                kind == "thinking"
                and (bytes(block.get("signature", b"")) in refused or bool(googles(block.get("signature"))[1]))
            )
            or (
                kind == "redacted_thinking"
                and (signer_of(block) != ANTHROPIC or bytes(block.get("data", b"")) in _NO_DATA)
            )
        ),
        "Messages refuses thinking blocks that it did not sign",
    )
    return left if left.losses else _thinking_on(fields, conversation, habits)


def _in_words(fields: Mapping[str, msgspec.Raw], conversation: bytes) -> Wording:
    """Return a Messages request without sealed thinking blocks and blocks not in words: unreadable for it."""
    if GOOGLES not in conversation and b'"redacted_thinking"' not in conversation:
        return Wording(fields)
    return _without_thoughts(
        fields,
        lambda kind, block: (
            kind == "redacted_thinking" or (kind == "thinking" and bool(googles(block.get("signature"))[1]))
        ),
        OTHERS_REASON,
    )


def _thinking_on(fields: Mapping[str, msgspec.Raw], conversation: bytes, habits: Habits) -> Wording:
    """Return a request that does not ask to think on after calls of tools that another model made without thoughts.

    Raises:
        Malformed: the conversation is not valid in Messages; only checked where thinking is enabled.

    """
    is_enabled = b'"enabled"' in bytes(fields.get("thinking", msgspec.Raw()))
    if not (is_enabled and habits.signs and b'"tool_result"' in conversation):
        return Wording(fields)
    turns: list[dict[str, Any]] = [dict(turn) for turn in objects_at(fields["messages"], "messages")[-2:]]
    for turn in turns:
        if not is_string(turn.get("content", _NO_TEXT)):
            turn["content"] = objects_at(turn["content"], "messages")
    if not lacks_thoughts(turns):
        return Wording(fields)
    left = {name: value for name, value in fields.items() if name != "thinking"}
    return Wording(left, (Loss("thinking", CANNOT_THINK_ON, hint=True),))


def without_foreign(fields: Mapping[str, msgspec.Raw], habits: Habits = _ANY) -> Wording:
    """Return a Messages request without what the model's server did not write, or does not read.

    Raises:
        Malformed: as of ``without_unsigned_thoughts``.

    """
    wording = without_unsigned_thoughts(fields, habits)
    wording = _without_citations(wording)
    system = fields.get("system")
    if habits.reads_bills or system is None or A_BILLS_BEGIN not in bytes(system) or is_string(system):
        return wording
    blocks = objects_at(system, "system")
    bills = [number for number, block in enumerate(blocks) if is_bill(block.get("text"))]
    if not bills:  # only a text mentions the note
        return wording
    kept = [block for number, block in enumerate(blocks) if number not in bills]
    said = {name: value for name, value in wording.fields.items() if name != "system"}
    said |= {"system": raw_json(kept)} if kept else {}
    return Wording(said, (*wording.losses, *(Loss(f"system[{number}]", A_BILL, hint=True) for number in bills)))


# A citation of another vendor's search reached the client with an empty index: only Anthropic's citations have one.
_INDEX = b'"encrypted_index"'


def _without_citations(wording: Wording) -> Wording:
    """Return a Messages request without citations that other vendors made: Anthropic cannot find their source."""
    conversation = wording.fields.get("messages", msgspec.Raw(b"[]"))
    if _INDEX not in bytes(conversation):
        return wording
    turns, losses = objects_at(conversation, "messages"), []
    for number, turn in enumerate(turns):
        content, path = turn.get("content", msgspec.Raw(b"[]")), f"messages[{number}].content"
        if is_string(content) or _INDEX not in bytes(content):
            continue
        blocks = objects_at(content, path)
        for at, block in enumerate(blocks):
            given = block.get("citations", msgspec.Raw(b"[]"))
            if bytes(memoryview(given)[:1]) != b"[":
                continue
            found = objects_at(given, f"{path}[{at}].citations")
            kept = [each for each in found if bytes(each.get("encrypted_index", b"")) != b'""']
            if len(kept) < len(found):
                block["citations"] = raw_json(kept)
                losses.append(Loss(f"{path}[{at}].citations", "Messages has no such search of its own", hint=True))
        turn["content"] = raw_json(blocks)
    if not losses:  # all citations are Anthropic's own
        return wording
    return Wording({**wording.fields, "messages": raw_json(turns)}, (*wording.losses, *losses))


def _lacks_signatures(conversation: bytes) -> bool:
    """Whether the blocks seem to have more thoughts than signatures: quotes within a text are escaped."""
    thoughts = conversation.count(_THOUGHT) + conversation.count(b'"thinking" :')
    return thoughts > 0 and thoughts > conversation.count(_SIGNATURE) + conversation.count(b'"signature" :')


_NO_THOUGHT = b'"disabled"'
_OF_THOUGHTS = b'"clear_thinking_'


class _Thinking(msgspec.Struct):
    type: str = ""


_thinking = msgspec.json.Decoder(_Thinking | None)


def forbids_thinking(fields: Fields) -> bool:
    """Whether a Messages request forbids the model to think."""
    try:
        thinking = _thinking.decode(fields.get("thinking", b"null"))
    except UNREADABLE:  # the provider reports a wrong value in its own words
        return False
    return thinking is not None and thinking.type == "disabled"


def without_effort(fields: Fields) -> Wording:
    """Return a Messages request that does not ask for thinking, for a model that refuses to be asked.

    Raises:
        Malformed: a field that would be changed has another type.

    """
    said, losses = dict(fields), []
    thinking = object_at(fields.get("thinking"), "thinking")
    if bytes(thinking.get("type", _NO_THOUGHT)) != _NO_THOUGHT:
        del said["thinking"]
        losses.append("thinking")
    config = object_at(fields.get("output_config"), "output_config")
    if "effort" in config:
        losses.append("output_config.effort")
        del config["effort"]
        said["output_config"] = raw_json(config)
        if not config:
            del said["output_config"]
    management = object_at(fields.get("context_management"), "context_management")
    # "`clear_thinking_20251015` strategy requires `thinking` to be enabled" (github.com/anthropics/claude-code/issues/
    # 11971, read on 2026-11-27).
    if _OF_THOUGHTS in bytes(management.get("edits", b"")):
        edits = objects_at(management["edits"], "context_management.edits")
        kept = [each for each in edits if not bytes(each.get("type", b"")).startswith(_OF_THOUGHTS)]
        said["context_management"] = raw_json({**management, "edits": kept})
        losses.append("context_management.edits")
        if not kept:
            del said["context_management"]
    return Wording(said, tuple(Loss(field, PLAIN, hint=True) for field in losses))


# How hard to think, for a model that takes another form than other versions of Claude: "adaptive thinking is not
# supported on this model", "This model does not support the effort parameter" (asked live for
# github.com/elizaOS/eliza/pull/16175; about Claude Code's default at Haiku: github.com/mnfst/llm-gateway/pull/1928).
# From 4.7 on a budget is refused as well (platform.claude.com/docs/en/build-with-claude/adaptive-thinking, read on
# 2026-11-27).

_ANOTHER_FORM = "this model is told in another form how hard to think"
_NO_EFFORT = "this model takes no effort"


def with_effort(fields: Fields, habits: Habits) -> Wording:
    """Return a Messages request that says how hard to think in the form that the model takes.

    Raises:
        Malformed: a field that would be changed has another type.

    """
    own, said, losses = of_messages(habits), dict(fields), []
    thinking = object_at(fields.get("thinking"), "thinking")
    config = object_at(fields.get("output_config"), "output_config")
    kind, effort = bytes(thinking.get("type", b"")), decoded(config.get("effort"), str, "output_config.effort")
    if kind == b'"adaptive"' and not own.adaptive_thinking:
        limit = decoded(fields.get("max_tokens"), int, "max_tokens") or DEFAULT_MAX_TOKENS
        budget, cannot = budget_of_effort(effort or "high", limit), _lacks_thoughts(fields)
        said["thinking"] = raw_json({"type": "enabled", "budget_tokens": budget})
        losses.append(Loss("thinking", CANNOT_THINK_ON if cannot else _ANOTHER_FORM, hint=True))
        if budget is None or cannot:
            del said["thinking"]
    elif kind == b'"enabled"' and not own.takes_budget:
        budget = decoded(thinking.get("budget_tokens"), int, "thinking.budget_tokens") or 0
        shown = {name: value for name, value in thinking.items() if name == "display"}
        said["thinking"] = raw_json({"type": "adaptive", **shown})
        if effort is None:
            said["output_config"] = raw_json({**config, "effort": effort_of_budget(budget)})
        losses.append(Loss("thinking.budget_tokens", _ANOTHER_FORM, hint=True))
    elif kind in {_NO_THOUGHT, _NOTES} and own.least_thinking not in {"off", kind.decode().strip('"')}:
        return _thinking_least(said, config, own.least_thinking)
    elif kind == _NOTES and own.least_thinking != "off":
        losses += _ease(said, config)
    elif kind == _NOTES:
        said["thinking"] = raw_json({"type": "disabled"})
        losses.append(Loss("thinking", _ANOTHER_FORM, hint=True))
    if effort is not None and not own.takes_effort:
        losses.append(Loss("output_config.effort", _NO_EFFORT, hint=True))
        rest = {name: value for name, value in config.items() if name != "effort"}
        said["output_config"] = raw_json(rest)
        if not rest:
            del said["output_config"]
    return Wording(said, tuple(losses)) if losses else Wording(fields)


_NOTES = b'"between_tools"'
# Beside ``"thinking": {"type": "between_tools"}`` these efforts are a 400
# (platform.claude.com/docs/en/models/sonnet-5-5/whats-new-sonnet-5-5, read on 2026-11-29).
_TOO_HARD = frozenset({b'"xhigh"', b'"max"'})


def _thinking_least(said: RawObject, config: RawObject, least: LeastThinking) -> Wording:
    """Return a request with the least thinking in place of none, for a model that cannot stop thinking."""
    losses = [Loss("thinking", CANNOT_STOP_THINKING, hint=True)]
    if least == "between_tools":
        said["thinking"] = raw_json({"type": least})
        losses += _ease(said, config)
    else:
        del said["thinking"]
        said["output_config"] = raw_json({**config, "effort": least})
    return Wording(said, tuple(losses))


def _ease(said: RawObject, config: RawObject) -> list[Loss]:
    """Lower an effort that is refused beside thinking between tools alone; return what is lost."""
    if bytes(config.get("effort", b"")) not in _TOO_HARD:
        return []
    said["output_config"] = raw_json({**config, "effort": "high"})
    return [Loss("output_config.effort", _ANOTHER_FORM, hint=True)]


def _lacks_thoughts(fields: Fields) -> bool:
    last = objects_at(fields.get("messages"), "messages")[-2:]
    told = [turn.get("content", msgspec.Raw(b"[]")) for turn in last]
    return lacks_thoughts([{"content": "" if is_string(each) else objects_at(each, "content")} for each in told])


# Clients have to set a limit, so the limit is a ceiling only: programs send 32,000 or 64,000 to whatever model.

_LEAST_BUDGET_TOKENS = 1024  # the API's minimum


def with_limit(fields: Fields, most: int) -> tuple[Fields, tuple[str, ...]]:
    """Return a Messages request with a limit of ``most`` tokens. Thinking leaves a quarter of these for the answer.

    Raises:
        Malformed: ``thinking`` is no object.

    """
    said, lowered = {**fields, "max_tokens": raw_json(most)}, ["max_tokens"]
    thinking = object_at(fields.get("thinking"), "thinking")
    budget = decoded(thinking.get("budget_tokens"), int, "thinking.budget_tokens")
    if budget is not None and budget >= most:
        lowered.append("thinking.budget_tokens")
        said["thinking"] = raw_json({**thinking, "budget_tokens": max(_LEAST_BUDGET_TOKENS, most * 3 // 4)})
        if most <= _LEAST_BUDGET_TOKENS:
            del said["thinking"]
    return said, tuple(lowered)


def without_bound_reasoning(fields: Mapping[str, msgspec.Raw], since: int = 0) -> Wording:
    """Return a Messages request without thinking blocks from the turn ``since`` on; unchanged if there are none.

    Raises:
        Malformed: the conversation is not valid in Messages.

    """
    return _without_thoughts(fields, lambda kind, _: kind in _THOUGHTS, BOUND_REASON, since)


def without_reasoning_of(fields: Mapping[str, msgspec.Raw], of: frozenset[bytes]) -> Wording:
    """Return a Messages request without the thinking blocks that have these hashes.

    Raises:
        Malformed: the conversation is not valid in Messages.

    """

    def is_one(kind: str, block: RawObject) -> bool:
        return kind in _THOUGHTS and not of.isdisjoint(bound_reasoning(bytes(raw_json(block))))

    return _without_thoughts(fields, is_one, OTHERS_REASON)


# Thoughts of newer models are bound to all that came before them: "system, tools, and every earlier message". A client
# may edit that beginning: the time in a system prompt, an older result shortened. Then the vendor refuses the request,
# or drops the thoughts after the edit, as the field says. The field stands beside ``adaptive`` and ``enabled``, not
# beside ``between_tools`` (neither in the page nor in the SDK's types), and the header must name the field. Counting
# tokens has the same check. An account of before 2026-08-31 lets such thoughts through if nothing is said;
# ``block_binding: {}`` asks for that. platform.claude.com/docs/en/build-with-claude/preserved-thinking, read on
# 2026-11-29.
_SWITCH, CONTROLS = b'"block_binding"', "thinking-binding-controls-2026-08-01"
_DROPS = raw_json({"prefix_mismatch_behavior": "drop_block"})
_ADAPTIVE = raw_json("adaptive")  # what these models do where nothing is said
_FORCES = re.compile(rb'"type"\s*:\s*"(?:any|tool)"')
HAVE_SWITCH = frozenset({"adaptive", "enabled"})
_THOUGHT_BLOCKS = (b'"thinking"', b'"redacted_thinking"')


def dropping_unfit(fields: Fields) -> Fields:
    """Return a request that has unfit thoughts dropped: the text before them changed. Unchanged without thoughts.

    Raises:
        Malformed: ``thinking`` is no object.

    """
    conversation = bytes(fields.get("messages", b""))
    if _SWITCH in bytes(fields.get("thinking", b"")) or not any(each in conversation for each in _THOUGHT_BLOCKS):
        return fields
    asked = object_at(fields.get("thinking"), "thinking")
    if not asked and _FORCES.search(bytes(fields.get("tool_choice", b""))):
        return fields  # accepted while nothing is said about thinking, and not beside ``adaptive``
    thinking = {"type": _ADAPTIVE, **asked}
    if bytes(thinking["type"]).decode().strip('"') not in HAVE_SWITCH:
        return fields
    return {**fields, "thinking": raw_json({**thinking, "block_binding": _DROPS})}


_PLACE, _NUMBER = re.compile(r"messages\.\d+\.content\.\d+"), re.compile(r"\.(\d+)")


def place_of(entry: UnshownEntry) -> str:
    """Return the place of a thought that the model was not shown, from the vendor's name of the place."""
    return _NUMBER.sub(r"[\1]", entry.path) if _PLACE.fullmatch(entry.path) else "messages"


def header_for(fields: Fields) -> tuple[str, str] | None:
    """Return the header that the vendor requires beside a field of the request; None: the request has no such field."""
    return ("anthropic-beta", CONTROLS) if _SWITCH in bytes(fields.get("thinking", b"")) else None


def _without_thoughts(
    fields: Mapping[str, msgspec.Raw], is_left_out: Callable[[str, RawObject], bool], reason: str, since: int = 0
) -> Wording:
    """Return a Messages request without the thinking blocks that are to be left out, from the turn ``since`` on.

    If a turn with calls of tools loses its thinking, and the next turn has the calls' results, the model must not think
    on.
    """
    losses: list[Loss] = []
    said: list[dict[str, Any]] = []
    for number, turn in enumerate(objects_at(fields["messages"], "messages")):
        path = f"messages[{number}].content"
        content = turn.get("content")
        if number < since or content is None or is_string(content):
            said.append({**turn})
            continue
        kept: list[RawObject] = []
        for place, block in enumerate(objects_at(content, path)):
            if is_left_out(text_at(block, "type", path), block):
                losses.append(Loss(f"{path}[{place}]", reason, hint=True))
            else:
                kept.append(block)
        if kept:
            said.append({**turn, "content": kept})
    if not losses:
        return Wording(fields)
    left = {**fields, "messages": raw_json(said)}
    if bytes(object_at(fields.get("thinking"), "thinking").get("type", b"")) == b'"enabled"' and lacks_thoughts(said):
        del left["thinking"]
        losses.append(Loss("thinking", CANNOT_THINK_ON, hint=True))
    return Wording(left, tuple(losses))
