"""How a sentence of a refusal becomes the fields that the refusal names, by the rules of ``rules.py``."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from providers.refusals.errors import SURPRISES, UNREADABLE, UpstreamError
from providers.refusals.refused_fields import CONDITION, LONGEST, NOUN, RefusedField, path_of
from providers.refusals.rules import RULES, Q

# Places with names that a client has given: a refusal that speaks of one may mean a thermometer's reading by
# ``temperature``. Groq, zod, JSON Schema and Python also use these words for a request's own fields.
_OF_NAMES = re.compile(
    r"schema|\bproperty\b|\bproperties\b|\btools?\b|\bfunctions?\b|\bmetadata\b|\blabels?\b"
    r"|\bstop (?:sequence|word|string)|\benum|(?<!\bextraneous )\bkeys?\b|\bkeywords?\b(?! argument)"
    r"|(?<!\bunknown )\bnames?\b|additionalProperties",
    re.IGNORECASE,
)
_OF_FIELDS = re.compile(
    rf"property {Q}[\w.]{{1,100}}{Q} is unsupported(?:, did you mean [^,]{{1,100}})?\W?"
    rf"|Unrecognized key\(s\) in object: {Q}\w{{1,100}}{Q}"
    rf"|Additional properties are not allowed \({Q}\w{{1,100}}{Q} was unexpected\)",
    re.IGNORECASE,
)

# The field that says how closely to look at a picture, as OpenAI writes its path in ``param``.
_DETAIL = re.compile(r"(?:body\.)?(?:messages|input)[\w.\[\]]{1,120}\.detail\b")
_PATTERNS = tuple((re.compile(rule.words, re.IGNORECASE), rule.is_of_value) for rule in RULES)
_GIVEN = re.compile(r"\b(?:received|got|at line)\b")  # the request's value, after the values that are taken
_WORDS = re.compile(r"[A-Za-z]+")
_EVERYDAY = frozenset({"speed", "user"})  # fields with such names are meant where they are quoted, or called a field
_CALLED = re.compile(rf"(?:\b{NOUN}|[:=])\s*$", re.IGNORECASE)
_BARE_AFTER = re.compile(rf" (?!{NOUN}\b)|[.!?]?(?:\s|$)")
_errors = msgspec.json.Decoder(dict[str, dict[str, Any]])


def may_mean_clients(text: str) -> bool:
    """Whether a refusal speaks of something with names that the client has given, such as a tool's schema."""
    return _OF_FIELDS.fullmatch(text) is None and _OF_NAMES.search(text) is not None


def details_in(text: str, param: str) -> Iterator[RefusedField]:
    """Yield the ``detail`` of a picture if a refusal names one, in any words: pictures without ``detail`` are taken."""
    for path_named in (param, *(match[0] for match in _DETAIL.finditer(text))):
        path = path_of(path_named)
        if path[-1:] != ("detail",):
            continue
        is_whole = _DETAIL.fullmatch(path_named) is not None
        yield RefusedField(path, is_of_value=True) if is_whole else RefusedField(path[-1:])


def fields_named(text: str, param: str) -> Iterator[RefusedField]:
    """Yield the fields that a sentence of a rule names, or the field in ``param`` where the sentence names none."""
    for pattern, is_of_value in _PATTERNS:
        for match in filter(_names_a_field, pattern.finditer(text)):
            groups = match.groupdict()
            values = tuple(_WORDS.findall(_GIVEN.split(groups.get("values") or "")[0]))
            if groups.get("fields"):
                yield from (RefusedField(path_of(name)) for name in groups["fields"].split(","))
            elif named := [path for group, path in _NAMED_BY.items() if groups.get(group)]:
                yield from map(RefusedField, named)
            elif groups.get("penalties"):
                yield from (RefusedField((name,)) for name in ("presence_penalty", "frequency_penalty"))
            elif groups.get("adaptive") or groups.get("enabled"):
                kinds = ("enabled",) if groups.get("adaptive") else ("adaptive",)
                yield RefusedField(("thinking", "type"), values=kinds, is_of_value=True)
            elif groups.get("loc"):
                yield RefusedField(path_of(groups["loc"]), values=values, is_of_value=is_of_value)
            elif groups.get("field"):
                path = (*path_of(groups.get("within") or ""), *path_of(groups["field"]))
                only_default = bool(groups.get("default"))  # of a value, too: all others are refused
                is_conditional = CONDITION.match(text, match.end()) is not None
                yield RefusedField(
                    path, groups.get("instead") or "", values, is_of_value and not only_default, is_conditional
                )
            elif param:
                yield RefusedField(path_of(param), values=values, is_of_value=is_of_value)


def _names_a_field(match: re.Match[str]) -> bool:
    """Whether the name in a match is no mere word of the sentence, as in "the user is not supported"."""
    if (match.groupdict().get("field") or "").lower() not in _EVERYDAY:
        return True
    start, end = match.span("field")
    is_bare = not match.string[start - 1 : start].strip() and _BARE_AFTER.match(match.string, end) is not None
    return not is_bare or _CALLED.search(match.string, 0, start) is not None


# By the group that matched: the fields that the words mean, but do not name.
_NAMED_BY: Mapping[str, tuple[str, ...]] = {
    "include": ("include",),
    "management": ("context_management",),
    "beta": ("anthropic_beta",),
    "media": ("media_resolution",),
}


def param_of(body: bytes | None) -> tuple[str, str]:
    """Return ``param`` and ``code`` of a refusal in OpenAI's shape; "" in place of a missing one."""
    try:
        error: Mapping[str, Any] = _errors.decode(body or b"{}").get("error", {})
    except (*UNREADABLE, *SURPRISES):
        return "", ""
    param, code = error.get("param"), error.get("code")
    return param if isinstance(param, str) else "", code if isinstance(code, str) else ""


def mentions(refusal: UpstreamError, names: Iterable[str]) -> bool:
    """Whether a refusal has one of ``names`` as a word, in upper or lower case: some servers write all in one case."""
    words = (rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])" for name in names if name)
    text = refusal.said[:LONGEST]
    return any(re.search(each, text, re.IGNORECASE) for each in words)
