"""A field that a refusal names, the sentence that names the field, and the words around the name."""

import re
from typing import NamedTuple

LITERALS = "(?:true|false|null|none|minimal|low|medium|high|xhigh|max)"  # of a field named before
# Behind one of these words a bare name may be a client's own: "tool verbosity failed" refuses no field ``verbosity``.
NO_VALUE = "".join(rf"(?<!{word} )(?<!{word} ['\"`])" for word in ("function", "tool", "value", "value:", "variant"))
NOUN = r"(?:param|parameter|argument|field|property|key|option)(?:s|\(s\))?"
# Words after which another field follows, beside which alone a field is refused: "topP is not supported when thinking
# is enabled" (danny-avila/LibreChat/issues/8939). Without ``thinking`` the model takes ``topP``.
CONDITION = re.compile(
    r"[\s'\"`,)]{0,3}(?:when|if|while|unless|together|in combination|alongside|along with"
    r"|(?:for|in|during) (?:\w+ )?stream\w*"
    r"|with (?:\w+ )?(?:tools?|functions?|json|response_format|structured|stream\w*)\b)",
    re.IGNORECASE,
)
MOST_FIELDS = 16  # of one refusal
LONGEST = 4096  # characters in which words are searched
SENTENCES = re.compile(r"(?<=[.;!?])\s+|(?<=[\u3002\uff1b\uff01\uff1f])|\n")
_SEPARATORS = re.compile(r"[.\[\]/,\s'\"]+")
# Bedrock, with 400, or with 403 as if the key were refused: "You invoked an unsupported model or your request did not
# allow prompt caching." anomalyco/opencode/issues/782, zeroclaw-labs/zeroclaw/pull/7315, read on 2026-12-01.
MARKS_REFUSED = r"\brequest did not allow prompt (?P<field>caching)\b"
_MARKS_REFUSED = re.compile(MARKS_REFUSED)


class RefusedField(NamedTuple):
    """A field that a refusal names. ``path``: in the words of the refusal."""

    path: tuple[str, ...]
    instead: str = ""  # the name to use in place of the refused one
    values: tuple[str, ...] = ()  # the values that are taken
    is_of_value: bool = False  # other values are taken
    is_conditional: bool = False  # beside something else of this request


def path_of(written: str) -> tuple[str, ...]:
    """Return the names on a path: of ``body.reasoning.effort``, or ``'body', 'messages', 0``."""
    names = tuple(name for name in _SEPARATORS.split(written) if name)
    return names[1:] if names[:1] == ("body",) else names


def refuses_marks(said: str) -> bool:
    """Whether a model that has no cache refuses marks of what to cache."""
    return _MARKS_REFUSED.search(said) is not None
