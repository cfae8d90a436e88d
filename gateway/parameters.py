"""What a model's configuration says about the parameters of its requests: defaults, maximums, a word before them all.

The configuration uses chat's names; a request is changed in the dialect it came in, at its top level only.
"""

import re
from collections.abc import Mapping

import msgspec

from gateway.errors import InvalidRequest
from gateway.settings.model import ModelSettings
from providers.dialects.dialect import Dialect
from providers.dialects.wording import raw_json

_ANSWER_LIMITS: Mapping[Dialect, tuple[str, ...]] = {  # the names of max_tokens, any of which says it
    Dialect.CHAT: ("max_completion_tokens", "max_tokens"),
    Dialect.COMPLETIONS: ("max_tokens",),
    Dialect.MESSAGES: ("max_tokens",),
    Dialect.RESPONSES: ("max_output_tokens",),
}
# Other dialects than chat have fewer parameters, some by other names, and refuse what they do not know.
_KNOWN: Mapping[Dialect, frozenset[str]] = {
    Dialect.MESSAGES: frozenset(
        {"output_config", "stop_sequences", "temperature", "thinking", "top_k", "top_p"}  # its metadata is another
    ),
    Dialect.RESPONSES: frozenset(
        {"metadata", "parallel_tool_calls", "reasoning", "service_tier", "temperature", "text", "top_logprobs"}
        | {"top_p", "user"}
    ),
}
_CHATS_ALONE = frozenset(  # not in the older completions, which know vendors' own as chat does
    {"metadata", "modalities", "parallel_tool_calls", "reasoning_effort", "response_format", "service_tier", "store"}
    | {"tool_choice", "tools", "top_logprobs", "verbosity", "web_search_options"}
)
_SYSTEM: Mapping[Dialect, str] = {Dialect.MESSAGES: "system", Dialect.RESPONSES: "instructions"}
_STOPS = "stop_sequences"
_ARRAY, _EMPTY_ARRAY, _STRING = (re.compile(rb"\s*" + begin) for begin in (rb"\[", rb"\[\s*\]", rb'"'))
_NULL = msgspec.Raw(b"null")

Fields = dict[str, msgspec.Raw]


class Parameters(msgspec.Struct, frozen=True):
    """The parameters of one model's requests."""

    defaults: Mapping[str, msgspec.Raw]
    maximums: Mapping[str, float]
    system_prefix: str | None

    @property
    def most_tokens(self) -> int | None:
        """What an answer may have at most."""
        limits = [int(self.maximums[name]) for name in _ANSWER_LIMITS[Dialect.CHAT] if name in self.maximums]
        return min(limits, default=None)

    @classmethod
    def of(cls, settings: ModelSettings) -> "Parameters | None":
        """Return what ``settings`` say, None where they say nothing."""
        if not (settings.defaults or settings.maximums or settings.system_prefix):
            return None
        defaults = {name: raw_json(value) for name, value in settings.defaults.items()}
        return cls(defaults, settings.maximums, settings.system_prefix)

    def applied(self, fields: Mapping[str, msgspec.Raw], dialect: Dialect) -> tuple[Fields, tuple[str, ...]]:
        """Return the request with the model's parameters, and the names of those that were lowered to their maximum.

        Raises:
            InvalidRequest: one that has a maximum is no number.

        """
        changed = dict(fields)
        for name, value in self.defaults.items():
            spellings = _spellings(name, dialect)
            if spellings and not any(_is_said(changed.get(spelling)) for spelling in spellings):
                spelling = name if name in spellings else spellings[0]
                changed[spelling] = _as_list(value) if spelling == _STOPS else value
        lowered: list[str] = []
        for name, most in self.maximums.items():
            spellings = _spellings(name, dialect)
            limits_answer = name in _ANSWER_LIMITS[Dialect.CHAT]
            said = [spelling for spelling in spellings if _is_said(changed.get(spelling))]
            for spelling in said:
                asked = _number(spelling, changed[spelling])
                if asked > most or (limits_answer and asked < 0):  # to some servers -1 is no limit
                    changed[spelling] = _written(most)
                    lowered.append(spelling)
            if not said and spellings and limits_answer:  # unsaid, an answer has no limit
                changed[name if name in spellings else spellings[0]] = _written(most)
        if self.system_prefix is not None:
            _put_first(changed, self.system_prefix, dialect)
        return changed, tuple(dict.fromkeys(lowered))


def _spellings(name: str, dialect: Dialect) -> tuple[str, ...]:
    """Return the names that parameter ``name`` has in ``dialect``; none where it does not know it."""
    if name in _ANSWER_LIMITS[Dialect.CHAT]:
        return _ANSWER_LIMITS[dialect]
    known = _KNOWN.get(dialect)
    if name == "stop" and dialect is Dialect.MESSAGES:
        return (_STOPS,)
    if dialect is Dialect.COMPLETIONS and name in _CHATS_ALONE:
        return ()
    return (name,) if known is None or name in known else ()


def _as_list(value: msgspec.Raw) -> msgspec.Raw:
    """Return chat's ``stop``, which may be one string, as Messages has it."""
    return msgspec.Raw(b"[" + bytes(value) + b"]") if bytes(value).startswith(b'"') else value


def _put_first(fields: Fields, prefix: str, dialect: Dialect) -> None:
    """Say ``prefix`` before the request's own system prompt; messages are not parsed for it, and copied once."""
    if dialect is Dialect.CHAT:
        fields["messages"] = _with_first(fields["messages"], {"role": "system", "content": prefix})
        return
    name = _SYSTEM.get(dialect)
    if name is None:
        return  # a raw prompt is the client's alone
    own = fields.get(name)
    if own is None or not _is_said(own):
        fields[name] = raw_json(prefix)
    elif _ARRAY.match(own):  # Messages' system as blocks, which may carry cache markers
        fields[name] = _with_first(own, {"type": "text", "text": prefix})
    elif (opened := _STRING.match(own)) is not None:
        said = msgspec.json.encode(f"{prefix}\n\n")
        fields[name] = msgspec.Raw(b"".join([memoryview(said)[:-1], memoryview(own)[opened.end() :]]))


def _with_first(array: msgspec.Raw, item: Mapping[str, str]) -> msgspec.Raw:
    """Return ``array`` with ``item`` before all others."""
    opened = _ARRAY.match(array)
    if opened is None:
        return array  # the provider's to refuse
    comma = b"" if _EMPTY_ARRAY.match(array) else b","
    return msgspec.Raw(b"".join([b"[", msgspec.json.encode(item), comma, memoryview(array)[opened.end() :]]))


def _is_said(raw: msgspec.Raw | None) -> bool:
    return raw is not None and raw != _NULL


def _number(name: str, raw: msgspec.Raw) -> float:
    try:
        return msgspec.json.decode(raw, type=float)
    except msgspec.DecodeError:  # some servers would read a number in it all the same
        raise InvalidRequest(f"{name!r} must be a number: it has a maximum here", param=name) from None


def _written(number: float) -> msgspec.Raw:
    return raw_json(int(number) if number == int(number) else number)
