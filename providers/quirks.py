"""How a vendor's chat API departs from OpenAI's, as data, and the shaping of a request to it.

A row of the catalog names parameters the vendor rejects or calls otherwise, so that one client body can be sent to all.
Bodies are handled at their top level, values staying raw JSON: a long prompt raced three ways is never parsed for it.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from providers.dialects.wording import Loss

_NOTHING = (b"null",)
_DEFAULTS: Mapping[str, tuple[bytes, ...]] = {  # what asks for nothing, as JSON writes it
    "frequency_penalty": (b"null", b"0", b"0.0"),
    "logit_bias": (b"null", b"{}"),
    "logprobs": (b"null", b"false"),
    "n": (b"null", b"1"),
    "parallel_tool_calls": (b"null", b"true"),
    "presence_penalty": (b"null", b"0", b"0.0"),
    "service_tier": (b"null", b'"auto"', b'"default"'),
    "store": (b"null", b"false"),
    "top_logprobs": (b"null", b"0"),
}
_HINTS = frozenset({"metadata", "prompt_cache_key", "safety_identifier", "service_tier", "user"})  # no answer changes
_DEVELOPER = b'"developer"'
_SYSTEM = msgspec.Raw(b'"system"')
_CALLS, _SIGNED = b'"tool_calls"', b'"thought_signature"'
_NONE = msgspec.Raw(b"null")
_calls_decoder = msgspec.json.Decoder(list[dict[str, msgspec.Raw]] | None)
_messages_decoder = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


class Quirks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to change in a request to this vendor, and what to mend in its answers. The default changes nothing."""

    drop: frozenset[str] = frozenset()  # parameters the vendor answers with an error
    rename: Mapping[str, str] = {}  # OpenAI's name to the vendor's: max_completion_tokens -> max_tokens
    usage_option: Literal["stream_options", "none"] = "stream_options"  # none: usage comes unasked, asking is an error
    system_role: bool = False  # the vendor has no developer role: such messages go out as system
    takes_thoughts: bool = False  # a model's reasoning_content is wanted back, and may be missed; others refuse it
    unsigned_call: str | None = None  # a thought signature for calls of another's model: it refuses those without
    repairs: frozenset[Literal["tool_index"]] = frozenset()  # what is missing in its streamed chunks


def shape(fields: Mapping[str, msgspec.Raw], quirks: Quirks) -> dict[str, msgspec.Raw]:
    """Return the client's ``fields`` as the vendor takes them; always a new dictionary.

    Where the client sent both OpenAI's name of a parameter and the vendor's, the vendor's is kept.
    """
    shaped = {name: value for name, value in fields.items() if name not in quirks.drop and name not in quirks.rename}
    for name, vendor_name in quirks.rename.items():
        if name in fields:
            shaped.setdefault(vendor_name, fields[name])
    if quirks.usage_option == "none":
        shaped.pop("stream_options", None)
    if quirks.system_role and "messages" in shaped:
        shaped["messages"] = _without_developer_role(shaped["messages"])
    if quirks.unsigned_call is not None and "messages" in shaped:
        shaped["messages"] = _with_signed_calls(shaped["messages"], quirks.unsigned_call)
    return shaped


def losses(fields: Mapping[str, msgspec.Raw], quirks: Quirks) -> tuple[Loss, ...]:
    """Return what the client asked for and this vendor will not hear, in the client's order.

    A value that is the API's default asks for nothing; ``stream_options`` is not missed where usage comes unasked.
    """
    if quirks.drop.isdisjoint(fields):
        return ()
    return tuple(
        Loss(name, "this provider does not take it", hint=name in _HINTS)
        for name, value in fields.items()
        if name in quirks.drop and bytes(value) not in _DEFAULTS.get(name, _NOTHING)
    )


def _without_developer_role(messages: msgspec.Raw) -> msgspec.Raw:
    """Return ``messages`` with developer messages as system ones; what is no list of objects is left to the vendor."""
    raw = bytes(messages)
    if _DEVELOPER not in raw:
        return messages
    try:
        decoded = _messages_decoder.decode(raw)
    except msgspec.DecodeError:
        return messages
    for message in decoded:
        if message.get("role") == msgspec.Raw(_DEVELOPER):
            message["role"] = _SYSTEM
    return msgspec.Raw(msgspec.json.encode(decoded))


def _with_signed_calls(messages: msgspec.Raw, signature: str) -> msgspec.Raw:
    """Return ``messages`` with ``signature`` at calls that have none, of several at once the first, as Gemini signs.

    What is no list of objects is left to the vendor.
    """
    raw = bytes(messages)
    if _CALLS not in raw:
        return messages
    signed = msgspec.Raw(msgspec.json.encode({"google": {"thought_signature": signature}}))
    changed = False
    try:
        decoded = _messages_decoder.decode(raw)
        for message in decoded:
            calls = _calls_decoder.decode(message.get("tool_calls", _NONE)) or ()
            if calls and not any(_SIGNED in bytes(call.get("extra_content", _NONE)) for call in calls):
                calls[0]["extra_content"] = signed
                message["tool_calls"] = msgspec.Raw(msgspec.json.encode(calls))
                changed = True
    except msgspec.DecodeError:
        return messages
    return msgspec.Raw(msgspec.json.encode(decoded)) if changed else messages
