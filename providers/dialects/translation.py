"""Translations from one dialect to another, through chat."""

import re
from collections.abc import Collection, Container, Mapping, Sequence

import msgspec

from providers.dialects.chat.allowed_tools import offering_those_alone
from providers.dialects.chat.custom_tools import TAKES_TEXT, AsCustom, as_functions
from providers.dialects.chat.forced_call import AsCall, asked_for_json, forced_in_chat
from providers.dialects.chat.one_call import OneCall
from providers.dialects.chat.shortened import ShorteningTranslation
from providers.dialects.dialect import Dialect, Habits, Translation
from providers.dialects.histories import without_parts_of_thoughts
from providers.dialects.sealed import Seal
from providers.dialects.wording import PLAIN, Fields, Loss, Wording, check_calls


def rendered(fields: Fields, source: Dialect, target: Dialect, habits: Habits) -> Wording:
    """Translate a request from ``source`` to ``target``, for a model with these ``habits``.

    Both must be dialects that can be translated.

    Raises:
        Malformed: the request is not valid in ``source``.

    """
    wording = Wording(fields)
    if source is target:
        return wording
    if source.pivoting is not None:
        is_chat = target.pivoting is None
        takes_signed = habits.takes_signed if target.pivoting is None else target.pivoting.takes_signed
        beyond = habits.beyond - {"outputs"} if target.pivoting is None else habits.beyond | target.pivoting.beyond
        marks = is_chat and habits.takes_marks
        takes: dict[str, bool | str | frozenset[str]] = {"marks": marks, "signed": takes_signed, "beyond": beyond}
        keeps: dict[str, bool | str | frozenset[str]] = {}
        for name in source.pivoting.keeps:
            keeps[name] = takes[name]
        wording = source.pivoting.to_chat(fields, thoughts=is_chat and habits.takes_thoughts, **keeps)
        if _is_empty(wording, "messages"):
            return Wording(wording.fields, (*wording.losses, _nothing_left(source, target)))
    else:
        check_calls(fields)
        wording = without_parts_of_thoughts(fields)
    wording = _thinking_less(wording, fields, source, habits)
    if source.requests.tools.custom_names is not None or "tool_choice" in wording.fields:
        wording = _with_tools(wording, source, target, habits)
    if target.pivoting is not None:
        second = target.pivoting.from_chat(wording.fields, habits)
        wording = Wording(second.fields, (*wording.losses, *as_asked(second.losses, source, wording)))
        if wording.losses and _is_empty(wording, target.requests.prompt):
            wording = Wording(wording.fields, (*wording.losses, _nothing_left(source, target)))
    return wording


def _thinking_less(wording: Wording, asked: Fields, source: Dialect, habits: Habits) -> Wording:
    """Return a chat request with the thinking that its model takes; without any if ``asked`` forbids thinking."""
    forbids = source.requests.thinking.forbids
    if habits.thinks:
        if not (habits.takes_none or habits.may_think) or forbids is None or not forbids(asked):
            return wording
        if not habits.takes_none:
            if "reasoning_effort" in wording.fields:
                return wording
            lost = Loss(source.requests.thinking.effort or "reasoning_effort", NOT_TOLD_OFF, hint=True)
            return msgspec.structs.replace(wording, losses=(*wording.losses, lost))
        return msgspec.structs.replace(wording, fields={**wording.fields, "reasoning_effort": _NO_THOUGHT})
    if _EFFORTS.isdisjoint(wording.fields):
        return wording
    loss = Loss(source.requests.thinking.effort or "reasoning_effort", PLAIN, hint=True)
    rest = {name: value for name, value in wording.fields.items() if name not in _EFFORTS}
    return msgspec.structs.replace(wording, fields=rest, losses=(*wording.losses, loss))


def _with_tools(wording: Wording, source: Dialect, target: Dialect, habits: Habits) -> Wording:
    """Return a chat request with tools, and the choice of one, as the model takes them."""
    if source.requests.tools.custom_names is not None and not takes_text(target, habits.beyond):
        wording = as_functions(wording)
    if "choices" not in habits.beyond and "tool_choice" in wording.fields:
        wording = _told_as_asked(offering_those_alone(wording), source, wording)
    forced = None if habits.takes_forced else forced_in_chat(wording.fields)
    if forced is None:
        return wording
    forced = msgspec.structs.replace(forced, as_json=habits.forbids_calls)
    return _told_as_asked(asked_for_json(wording, forced), source, wording)


def _told_as_asked(wording: Wording, source: Dialect, before: Wording) -> Wording:
    """Return a ``wording`` whose losses since ``before`` have the paths of the request in ``source``."""
    own = as_asked(wording.losses[len(before.losses) :], source, before)
    return msgspec.structs.replace(wording, losses=(*before.losses, *own))


def takes_text(spoken: Dialect, beyond: Container[str]) -> bool:
    """Whether a model asked in ``spoken`` has tools with a text argument: ``beyond`` says so, or the API has them."""
    return TAKES_TEXT in (beyond if spoken.pivoting is None else spoken.pivoting.beyond)


NOT_TOLD_OFF = "how this model is told not to think is not known: nothing is said of it"
_NO_THOUGHT = msgspec.Raw(b'"none"')
_EFFORTS = frozenset({"reasoning_effort", "shows_thoughts", "thinking_budget"})


def as_asked(losses: Sequence[Loss], source: Dialect, wording: Wording) -> Sequence[Loss]:
    """Return the losses of a chat request by the paths of the request in ``source``; ``wording``: the chat request."""
    if not losses or source.pivoting is None:
        return losses
    names = _names_of(source)
    fields = (wording.place_of(loss.field) or _named(names, loss.field) for loss in losses)
    return [msgspec.structs.replace(loss, field=field) for field, loss in zip(fields, losses, strict=True)]


def _names_of(dialect: Dialect) -> Mapping[str, str]:
    """Return chat's fields whose names differ in ``dialect``, with those names."""
    own = {} if dialect.pivoting is None else dialect.pivoting.names
    return {"messages": dialect.requests.prompt, **dialect.requests.parameters.renamed, **own}


def _named(names: Mapping[str, str], field: str) -> str:
    top = _TOP.split(field, 1)[0]
    is_part = field != top and top in _LISTS  # of a lost part: not the whole prompt is lost
    return field if is_part else names.get(top, field)


_LISTS = frozenset({"messages", "tools"})
_TOP = re.compile(r"[.\[]")  # behind the name of a field at the top


def named_in(source: Dialect, target: Dialect, asked: Fields, path: str) -> str:
    """Return the name that the client of a request ``asked`` in ``source`` has for its field ``path`` in ``target``."""
    if source is target:
        return path
    given, sent = source.requests, target.requests
    if path in sent.thinking.paths:
        own = given.thinking
        present = (name for name in (own.effort, *sorted(own.paths)) if name and name.partition(".")[0] in asked)
        return next(present, own.effort or path)
    if path in sent.parameters.answer_limits:
        return next((name for name in given.parameters.answer_limits if name in asked), path)
    chats = next((name for name, own in _names_of(target).items() if own == path), path)
    return _named(_names_of(source), chats)


def _is_empty(wording: Wording, prompt: str) -> bool:
    return bytes(wording.fields.get(prompt, b"")) == b"[]"


def _nothing_left(source: Dialect, target: Dialect) -> Loss:
    return Loss(source.requests.prompt, f"nothing of it can be said in {target.name}")


def as_call(target: Dialect, asked: Fields, source: Dialect, sent: Fields) -> AsCall | None:
    """Return a translation of JSON into a call; None unless ``sent`` asks for JSON where ``asked`` forces a call."""
    choice = bytes(sent.get(source.requests.tools.choice, b""))
    if (
        source.requests.tools.unforced is None
        or b'"none"' not in choice.lower()
        or target.requests.tools.forced is None
    ):
        return None
    forced = target.requests.tools.forced(asked)
    if forced is None:
        return None
    readers = target.requests.tools.offered.items()
    offered = [tool.name for field, read in readers if field in asked for tool in read(asked[field])]
    names = [name for name in offered if not forced.names or name in forced.names]
    return AsCall(names[0] if len(names) == 1 else None)


def texts_called(target: Dialect, asked: Fields, source: Dialect, beyond: Container[str]) -> Collection[str]:
    """Return the names of functions that stand for tools with a text argument, ``asked`` for in ``source``."""
    names = target.requests.tools.custom_names
    return () if names is None or takes_text(source, beyond) else names(asked)


def translations(
    source: Dialect,
    target: Dialect,
    asked: Fields,
    secrets: Sequence[str],
    *,
    called: AsCall | None = None,
    texts: Collection[str] = (),
    one_call: bool = False,
    most: int = 0,
    seal: Seal | None = None,
) -> list[Translation]:
    """Return the steps that translate an answer from ``source`` to ``target``, the dialect of the request ``asked``.

    ``secrets``: masked in errors. ``called``: makes a call of the text. ``texts``: functions that stand for tools with
    a text argument. ``one_call``: the provider was not told that one call is wanted. ``most``: the client's limit,
    where it is below the least limit that the provider takes. ``seal``: closes what only the maker can read.
    """
    steps: list[Translation] = []
    if source is target and called is None and not texts and not one_call and not most:
        return steps
    if source.pivoting is not None:
        sealed, number = source.pivoting.stream_sealed, target.requests.answers_in(asked)
        to_chat = source.pivoting.stream_to_chat(secrets, number) if sealed is None or seal is None else sealed(seal)
        steps.append(to_chat)
    if called is not None:
        steps.append(called)
    if texts:
        steps.append(AsCustom(texts))
    if source.pivoting is not None:
        least = source.requests.parameters.least_limit
        if least and 0 < (limit := target.requests.parameters.limit_in(asked) or 0) < least:
            most = limit
    if most:
        steps.append(ShorteningTranslation(most))
    wants_one = target.requests.tools.one_call
    is_untold = one_call or (source.pivoting is not None and not source.pivoting.takes_one_call)
    if is_untold and wants_one is not None and wants_one(asked):
        steps.append(OneCall())
    if target.pivoting is not None:
        steps.append(target.pivoting.stream_from_chat(asked, secrets))
    return steps
