"""A model's configured request parameters: defaults, maximums and a system prefix.

The configuration uses chat's names; a request is changed in its own dialect, only at its top level.
"""

import re
from collections.abc import Mapping

import msgspec

from gateway.errors import InvalidRequest
from gateway.settings.model import ModelSettings
from providers.dialects.dialect import Dialect
from providers.dialects.index import PIVOT
from providers.dialects.parameters import ParameterNames, SystemPrompt
from providers.dialects.wording import raw_json

_LIMITS = PIVOT.requests.parameters.answer_limits  # the configuration's names for an answer's maximum length
_ARRAY, _EMPTY_ARRAY, _STRING = (re.compile(rb"\s*" + begin) for begin in (rb"\[", rb"\[\s*\]", rb'"'))
_NULL = msgspec.Raw(b"null")

Fields = dict[str, msgspec.Raw]


class Parameters(msgspec.Struct, frozen=True):
    """The configured parameters of one model's requests."""

    defaults: Mapping[str, msgspec.Raw]
    maximums: Mapping[str, float]
    system_prefix: str | None

    @property
    def most_tokens(self) -> int | None:
        """The maximum of answer tokens; None: no limit."""
        limits = [int(self.maximums[name]) for name in _LIMITS if name in self.maximums]
        return min(limits, default=None)

    @classmethod
    def of(cls, settings: ModelSettings) -> "Parameters | None":
        """Return the parameters in ``settings``; None if there are none."""
        if not (settings.defaults or settings.maximums or settings.system_prefix):
            return None
        defaults = {name: raw_json(value) for name, value in settings.defaults.items()}
        return cls(defaults, settings.maximums, settings.system_prefix)

    def applied(self, fields: Mapping[str, msgspec.Raw], dialect: Dialect) -> tuple[Fields, tuple[str, ...]]:
        """Return the request with the model's parameters, and the names of those lowered to their maximum.

        Raises:
            InvalidRequest: a parameter with a maximum is not a number.

        """
        changed, names = dict(fields), dialect.requests.parameters
        for name, value in self.defaults.items():
            spellings = _spellings(name, names)
            if spellings and not any(_is_said(changed.get(spelling)) for spelling in spellings):
                spelling = name if name in spellings else spellings[0]
                changed[spelling] = _as_list(value) if spelling in names.lists else value
        lowered: list[str] = []
        for name, most in self.maximums.items():
            spellings = _spellings(name, names)
            limits_answer = name in _LIMITS
            said = [spelling for spelling in spellings if _is_said(changed.get(spelling))]
            for spelling in said:
                asked = _number(spelling, changed[spelling])
                if asked > most or (limits_answer and asked < 0):  # some servers take -1 as no limit
                    changed[spelling] = _written(most)
                    lowered.append(spelling)
            if not said and spellings and limits_answer:  # without it, an answer has no limit
                changed[name if name in spellings else spellings[0]] = _written(most)
        if self.system_prefix is not None and dialect.requests.system is not None:
            _put_first(changed, self.system_prefix, dialect.requests.system)
        return changed, tuple(dict.fromkeys(lowered))


def _spellings(name: str, names: ParameterNames) -> tuple[str, ...]:
    """Return the names of parameter ``name`` in a dialect; empty if it does not exist there."""
    return names.answer_limits if name in _LIMITS else names.of(name)


def _as_list(value: msgspec.Raw) -> msgspec.Raw:
    """Return a value of chat's that may be a single string as a list of strings."""
    return msgspec.Raw(b"[" + bytes(value) + b"]") if bytes(value).startswith(b'"') else value


def _put_first(fields: Fields, prefix: str, place: SystemPrompt) -> None:
    """Put ``prefix`` before the request's own system prompt; messages are not parsed, and copied once."""
    own = fields.get(place.field)
    if own is None or not _is_said(own):
        fields[place.field] = raw_json(prefix)
    elif _ARRAY.match(own):  # messages, or blocks, which may have cache markers
        fields[place.field] = _with_first(own, place.item(prefix))
    elif (opened := _STRING.match(own)) is not None:
        said = msgspec.json.encode(f"{prefix}\n\n")
        fields[place.field] = msgspec.Raw(b"".join([memoryview(said)[:-1], memoryview(own)[opened.end() :]]))


def _with_first(array: msgspec.Raw, item: Mapping[str, str]) -> msgspec.Raw:
    """Return ``array`` with ``item`` at its beginning."""
    opened = _ARRAY.match(array)
    if opened is None:
        return array  # invalid: the provider will refuse it
    comma = b"" if _EMPTY_ARRAY.match(array) else b","
    return msgspec.Raw(b"".join([b"[", msgspec.json.encode(item), comma, memoryview(array)[opened.end() :]]))


def _is_said(raw: msgspec.Raw | None) -> bool:
    return raw is not None and raw != _NULL


def _number(name: str, raw: msgspec.Raw) -> float:
    try:
        return msgspec.json.decode(raw, type=float)
    except msgspec.DecodeError:  # some servers would accept it as a number all the same
        raise InvalidRequest(f"{name!r} must be a number: it has a maximum here", param=name) from None


def _written(number: float) -> msgspec.Raw:
    return raw_json(int(number) if number == int(number) else number)
