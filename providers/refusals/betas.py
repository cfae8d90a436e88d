"""Words of refusals about betas: which are refused, and which are taken."""

import re
from collections.abc import Iterable
from typing import NamedTuple

# Betas are refused, named or not: by Anthropic, Azure and Vertex (QuantumNous/new-api/issues/2975,
# anthropics/claude-code/issues/12429), Bedrock (QuantumNous/new-api/issues/3041, BerriAI/litellm/pull/41203), and
# OpenAI, which has another header; read on 2026-11-29.
_OF_BETAS = re.compile(
    r"\b(?:unexpected|invalid|unknown|unsupported|unrecogni[sz]ed) (?:[\w-]{1,20} ){0,2}betas?\b"
    r"|\b(?:(?:anthropic|openai)[-_]betas?|beta (?:flag|header|feature|value)s?)\b[^.;!?\n]{0,80}"
    r"(?:\bnot (?:supported|accepted|allowed|permitted|available|enabled|recogni[sz]ed|known|valid)|unsupported"
    r"|\binvalid|\bun(?:known|expected|recogni[sz]ed))",
    re.IGNORECASE,
)
_UNEXPECTED = re.compile(r"\bunexpected value\(s\)", re.IGNORECASE)
_FOR_BETAS = re.compile(r"\bfor the ['\"`]?(?:anthropic|openai)[-_]beta\b", re.IGNORECASE)
_BETA = re.compile(r"(?<![\w.=-])\w[\w.=-]*[\w]", re.ASCII)
DATED = re.compile(r"\w-20\d\d-\d\d")  # most betas have a day
# After these words the accepted betas are listed.
_TAKEN = re.compile(
    r"input should be|expected one of|must be one of|\bnot in\b|\b(?:supported|allowed|valid|known|available) "
    r"(?:values|betas|flags|headers|ones)\b",
    re.IGNORECASE,
)
# Of the one beta with another name there, which an account does not have (anthropics/claude-code/issues/27944, /23700,
# /9653, NousResearch/hermes-agent/pull/21231, read on 2026-12-01).
_OF_LONG_CONTEXT = re.compile(
    r"\blong context beta\b[^.;!?\n]{0,40}\bnot (?:yet )?available\b|\bincompatible with the long context beta\b",
    re.IGNORECASE,
)
_LONG_CONTEXT = "context-1m-2025-08-07"
_IS_OF_BETAS = re.compile(r"(?:anthropic|openai)[-_]beta", re.IGNORECASE)


class Betas(NamedTuple):
    """What a refusal of betas says: words of the message, some of which may be betas of the request."""

    refused: frozenset[str]
    taken: frozenset[str]
    is_sure: bool = True  # False: no rule has these words, so only betas that the refusal names count


def betas_in(text: str, paths: Iterable[tuple[str, ...]]) -> Betas | None:
    """Return what a refusal says of betas, also where one of ``paths`` is theirs; None: nothing."""
    if _OF_LONG_CONTEXT.search(text) is not None:
        return Betas(frozenset({_LONG_CONTEXT}), frozenset(), is_sure=False)
    is_said = _UNEXPECTED.search(text) is not None and _FOR_BETAS.search(text) is not None
    if (
        not is_said
        and _OF_BETAS.search(text) is None
        and not any(_IS_OF_BETAS.fullmatch(name) for path in paths for name in path)
    ):
        return None
    return words_of_betas(text)


def words_of_betas(text: str, *, is_sure: bool = True) -> Betas:
    """Return the words before those that list what is taken, and the words behind them."""
    refused, *accepted = _TAKEN.split(text, maxsplit=1)
    return Betas(frozenset(_BETA.findall(refused)), frozenset(_BETA.findall("".join(accepted))), is_sure)
