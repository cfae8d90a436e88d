"""All that a provider's refusal of a request says, read once: ``exchange/taught.py`` decides what that teaches."""

import html
import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from providers.refusals.answer_limits import Room, least_in, room_in
from providers.refusals.betas import DATED, Betas, betas_in, words_of_betas
from providers.refusals.errors import RefusalScope, UpstreamError
from providers.refusals.learnt import Fact
from providers.refusals.named_fields import details_in, fields_named, may_mean_clients, param_of
from providers.refusals.other_words import in_other_words, is_foreign, is_of_foreign_value, mentioned
from providers.refusals.refused_fields import CONDITION, LONGEST, MOST_FIELDS, RefusedField, path_of
from providers.refusals.streaming import OF_USAGE
from providers.refusals.thinking import OF_EFFORT, OF_THINKING, OF_XHIGH
from providers.refusals.too_long import is_too_long
from providers.refusals.tools import OF_SCHEMAS, OF_UNFIT_CALLS, OF_WORDS, forced_in
from providers.refusals.turns import (
    OF_BLANKS,
    OF_DOCUMENTS,
    OF_HISTORY,
    OF_INSTRUCTIONS,
    OF_PREFILL,
    OF_ROLES,
    OF_SYSTEM,
    OF_TEXTS,
    ids_in,
)
from providers.refusals.vendor_limits import longest_in

_SCOPES = {None, RefusalScope.MODEL, RefusalScope.REQUEST}  # not of length, a vendor's limit, a filter
_STATUSES_OF_FIELDS = frozenset({None, 200, 400, 422})
# Of these the words may be about a failure of the server, which names a field by chance: "KeyError: 'seed'".
_STATUSES_OF_FAILURES = frozenset({500, 501})
_OF_FAILURES = re.compile(
    r"error\b|exception|\b(?:failed|failure|failing|internal|traceback|time-?out|timed out|crash\w*|panic\w*|assert\w*"
    r"|cuda|kernel|worker|memory|null|undefined|none|while|during)\b",
    re.IGNORECASE,
)
_CODES = frozenset({"unsupported_parameter", "unknown_parameter"})  # OpenAI's, beside ``param``


class RefusalReading(NamedTuple):
    """What a refusal says."""

    fields: tuple[RefusedField, ...]
    of_thinking: bool = False  # the model does not think, or not so
    of_thinking_here: bool = False  # the model does not think beside something else in this request
    of_effort: bool = False  # the model does not take this effort
    of_xhigh: bool = False  # the model does not take this effort if that is ``xhigh``, or the words only mention it
    longest: int = 0  # the most tokens of an answer
    least: int = 0  # the least limit of an answer, in tokens
    room: Room = Room()  # of an answer, beside the prompt of this request
    of_history: bool = False  # the roles, or lists of texts, are not taken
    of_roles: bool = False  # a role's name is not taken
    of_prefill: bool = False  # an answer that the request begins is not continued
    of_documents: bool = False  # blocks of documents are not taken, in Messages
    of_blanks: bool = False  # turns of the model, or texts in them, that say nothing are not taken
    of_texts: bool = False  # lists of texts are not taken, in Messages
    of_instructions: bool = False  # no system prompt is taken
    of_system: bool = False  # as ``of_roles``: a system message after the first turn
    of_ids: tuple[str, int] | None = None  # that the ids of calls have these letters, and at most so many
    of_calls: str = ""  # ``tool_name``: of a tool, offered or called; ``call_arguments``: of an earlier call
    of_usage: bool = False  # ``stream_options`` is not taken
    of_names: bool = False  # about something with names that the client has given, such as a tool's schema or metadata
    of_schemas: bool = False  # a strict schema breaks the rules
    of_words: bool = False  # a schema, strict or not, has words or a form that the server does not take
    of_forced: str = ""  # no tool is called by force while the model thinks: the field that stops the thinking
    betas: Betas | None = None  # some betas are not taken
    mentioned: tuple[str, ...] = ()  # the only path that is named, where nothing else is understood
    mentions_value: bool = False  # the words around that path are about values
    is_of_foreign_value: bool = False  # in another language they are about an amount or a kind, perhaps of that value

    def __bool__(self) -> bool:
        return any(self._replace(of_names=False, of_xhigh=False, is_of_foreign_value=False))


def read(refusal: UpstreamError) -> RefusalReading:
    """Return what the words, codes and parameters of a refusal say."""
    text = html.unescape(refusal.said[:LONGEST].replace("\\", ""))
    param, code = param_of(refusal.body)
    fields: dict[tuple[str, ...], RefusedField] = {}
    by_code = (RefusedField(path_of(param)),) if param and code in _CODES else ()
    for each in (*fields_named(text, param), *by_code, *details_in(text, param)):
        if each.path and len(fields) < MOST_FIELDS:
            fields.setdefault(each.path, each)
    thinking = OF_THINKING.search(text)
    reading = RefusalReading(
        tuple(fields.values()),
        of_thinking=thinking is not None,
        of_thinking_here=thinking is not None and CONDITION.match(text, thinking.end()) is not None,
        of_effort=OF_EFFORT.search(text) is not None,
        of_xhigh=any(match["listed"] is None for match in OF_XHIGH.finditer(text)),
        longest=longest_in(text),
        least=least_in(text),
        room=room_in(text),
        of_history=OF_HISTORY.search(text) is not None,
        of_roles=OF_ROLES.search(text) is not None,
        of_prefill=OF_PREFILL.search(text) is not None,
        of_documents=OF_DOCUMENTS.search(text) is not None,
        of_blanks=OF_BLANKS.search(text) is not None,
        of_texts=OF_TEXTS.search(text) is not None,
        of_instructions=OF_INSTRUCTIONS.search(text) is not None,
        of_system=OF_SYSTEM.search(text) is not None,
        of_ids=ids_in(text),
        of_calls="" if (unfit := OF_UNFIT_CALLS.search(text)) is None else str(unfit.lastgroup),
        of_usage=OF_USAGE.search(text) is not None,
        of_schemas=OF_SCHEMAS.search(text) is not None,
        of_words=OF_WORDS.search(text) is not None,
        of_forced=forced_in(text),
        betas=betas_in(text, fields),
    )
    reading = reading or reading._replace(fields=tuple(in_other_words(text)))
    is_of_field = refusal.status in _STATUSES_OF_FIELDS or (
        refusal.status in _STATUSES_OF_FAILURES and (is_foreign(text) or _OF_FAILURES.search(text) is None)
    )
    if not reading and is_of_field and refusal.scope in _SCOPES and not is_too_long(text):
        path, is_of_value = mentioned(text, param)
        dated = words_of_betas(text, is_sure=False) if DATED.search(text) is not None else None
        reading = reading._replace(
            mentioned=path, mentions_value=is_of_value, is_of_foreign_value=is_of_foreign_value(text), betas=dated
        )
    return reading._replace(of_names=may_mean_clients(text))


def held_of(refusal: UpstreamError, fields: Mapping[str, msgspec.Raw]) -> Fact | None:
    """Return what a refusal of ``fields`` says about the longest prompt and answer; None: nothing."""
    return read(refusal).room.fact_of(fields)


def room_of(refusal: UpstreamError, fields: Mapping[str, msgspec.Raw]) -> int:
    """Return how many tokens of an answer the ``refusal`` of ``fields`` allows, beside the prompt or at most.

    0: unknown.
    """
    reading = read(refusal)
    return reading.longest or reading.room.left_by(fields)
