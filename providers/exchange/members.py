"""Finds members of tools, turns, blocks and calls by the paths that refusals name, and leaves them out.

For example, 400 "messages[3].name: Extra inputs are not permitted" names ``messages.name``: a path here has no numbers,
as what is refused of one turn is left out of all. A path that begins with ``EVERYWHERE`` is of cache marks
(``cache_control``): the member is left out of each mark, or each mark is.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from providers.bodies import raw_json
from providers.dialects import HOLD_MARKS, LEFT_OUT, MARK, Fields, Loss, Wording
from providers.exchange.places import with_humps
from providers.refusals import UNREADABLE
from providers.vendors import members_named

EVERYWHERE: Final = "*."
OF_TOOLS: Final = f"tools.{MARK}"
_MARKS: Final = frozenset({MARK, "cache_point", "caching"})  # Converse's name; "did not allow prompt caching"
_OF_THOUGHTS: Final = ["thought"]  # of Google's parts: such a part goes as a whole, as without the mark it is an answer
_NULL: Final = b"null"
# What has turns, parts of turns and tools in it, and nothing with names of the client's own.
_HOLDERS: Final = frozenset(
    {"content", "contents", "function", "input", "messages", "output", "parts", "system", "tools"}
)
_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])
_lists = msgspec.json.Decoder(list[msgspec.Raw])


class Member(NamedTuple):
    """A member that a refusal names, and the member's value if the refusal has that."""

    path: str
    value: msgspec.Raw | None


def found(fields: Fields, named: Sequence[str], spelt: Callable[[str], str]) -> Member | None:
    """Return the member of something in a list that a refusal has ``named``; None if there is none such.

    ``spelt`` makes names comparable. Paths of pydantic have types of unions among the names; these are skipped. If a
    refusal names a cache mark without its place, marks in tools are left out first: Vertex takes all other marks.
    """
    try:
        return _member(fields, named, spelt)
    except RecursionError:  # no API has members that deep
        return None


def _member(fields: Fields, named: Sequence[str], spelt: Callable[[str], str]) -> Member | None:
    names = [spelt(name) for name in named]
    if len(names) == 1 and names[0] not in fields:
        paths = members_named(names[0]) if names[0] not in _MARKS else [OF_TOOLS, EVERYWHERE + MARK]
        return _named(fields, paths) or _null(fields, names[0], spelt)
    top = next((each for each in fields if spelt(each) == names[0]), None)
    if top == "system" and names[-1] == MARK:  # of all that can be marked the first: then no other is taken
        return _named(fields, [EVERYWHERE + MARK])
    within = None if top is None else _found(fields[top], names[1:], spelt, in_list=False)
    value = None if within is None else within[1]
    if MARK in names[:-1] and names[-1] != "type":
        path = f"{EVERYWHERE}{MARK}.{names[-1]}"
        return Member(path, value) if without(fields, path) is not fields else None
    if top is not None and within is None:  # Groq names the turn and the member, but not the part of the turn between
        return _named(fields, [path for path in members_named(names[-1]) if path.startswith(f"{top}.")])
    return None if top is None or within is None else Member(".".join((top, *within[0])), value)


def _named(fields: Fields, paths: Iterable[str]) -> Member | None:
    """Return the first member among these that a request has, in the request's own spelling."""
    spelled = (own for path in paths for own in dict.fromkeys((path, with_humps(path))))
    return next((Member(own, None) for own in spelled if without(fields, own) is not fields), None)


def _null(fields: Fields, name: str, spelt: Callable[[str], str]) -> Member | None:
    """Return the first member of this name that says nothing: ``"citations": null`` in a block of a turn."""

    def path_in(raw: msgspec.Raw) -> list[str] | None:
        if b"null" not in bytes(raw):
            return None
        if items := _list(raw):
            return next((path for item in items if (path := path_in(item)) is not None), None)
        said = _object(raw)
        own = next((each for each, value in said.items() if spelt(each) == name and bytes(value) == _NULL), None)
        if own is not None:
            return [own]
        inner = ((each, path_in(said[each])) for each in _HOLDERS & said.keys())
        return next(([each, *path] for each, path in inner if path is not None), None)

    path = path_in(raw_json({top: fields[top] for top in _HOLDERS & fields.keys()}))
    return None if path is None or len(path) == 1 else Member(".".join(path), msgspec.Raw(_NULL))


def _found(
    raw: msgspec.Raw, names: Sequence[str], spelt: Callable[[str], str], *, in_list: bool
) -> tuple[list[str], msgspec.Raw] | None:
    if not names:
        return None
    if items := _list(raw):
        number = int(names[0]) if names[0].isdecimal() and len(names[0]) <= len(str(len(items))) else len(items)
        rest = names[1:] if names[0].isdecimal() else names
        told_first = (*items[number : number + 1], *items[:number], *items[number + 1 :])
        tried = (_found(each, rest, spelt, in_list=True) for each in told_first if _is_object(each))
        return next((each for each in tried if each is not None), None)
    item, searched = _object(raw), set[str]()
    for number, name in enumerate(names):
        own = next((each for each in item if spelt(each) == name), None)
        if own is None:
            continue
        if number == len(names) - 1:
            return ([own], item[own]) if in_list else None
        # A value that has no such member after an earlier name has none after a later one.
        within = None if own in searched else _found(item[own], names[number + 1 :], spelt, in_list=in_list)
        if within is not None:
            return [own, *within[0]], within[1]
        searched.add(own)
    return None


def without(fields: Fields, path: str, value: str = "") -> Fields:
    """Return ``fields`` without a member; unchanged if nothing has the member. ``value``: only members of that JSON."""
    try:
        return _left(fields, path, value)
    except RecursionError:  # no API has members that deep
        return fields


def without_refused(fields: Fields, paths: Iterable[str]) -> Wording:
    """Return the fields of a request without what a vendor refuses at these ``paths``, as ``without`` has them."""
    losses = list[Loss]()
    for path in sorted(paths):
        left = without(fields, path)
        if left is not fields:
            fields = left
            losses.append(Loss(path.removeprefix(EVERYWHERE), "this provider does not support it"))
    return Wording(fields, tuple(losses))


def _left(fields: Fields, path: str, value: str) -> Fields:
    if path.startswith(EVERYWHERE):
        names = path.removeprefix(EVERYWHERE).split(".")
        tops = HOLD_MARKS | ({MARK} if len(names) > 1 else set[str]())
        left = {top: _within_marked(top, fields[top], names, value) for top in tops & fields.keys()}
    else:
        top, *names = path.split(".")
        left = {top: _without(fields[top], names, value)} if names and top in fields else {}
    changed = {name: raw for name, raw in left.items() if raw is not fields[name]}
    return {**fields, **changed} if changed else fields


def _without(raw: msgspec.Raw, names: Sequence[str], value: str) -> msgspec.Raw:
    """Return a value without the member at a path below the value; unchanged if there is none."""
    if f'"{names[-1]}"'.encode() not in bytes(raw):
        return raw
    if items := _list(raw):
        if names == _OF_THOUGHTS and (kept := [item for item in items if not _is_thought(item)]) != items:
            raw = raw_json(kept or [{"text": LEFT_OUT}])
            items = _list(raw)
        return _each(raw, items, lambda item: _without(item, names, value))
    said = _object(raw)
    own = said.get(names[0])
    if own is None:
        return raw
    if len(names) == 1:
        if value and bytes(own).decode(errors="replace") != value:
            return raw
        return raw_json({name: each for name, each in said.items() if name != names[0]})
    inner = _without(own, names[1:], value)
    return raw if inner is own else raw_json({**said, names[0]: inner})


def _within_marked(name: str, raw: msgspec.Raw, names: Sequence[str], value: str) -> msgspec.Raw:
    """Return the member ``name`` of a request, or of a part of one, without what is refused of cache marks within."""
    if f'"{names[-1]}"'.encode() not in bytes(raw):
        return raw
    if name == MARK:
        return _without(raw, names[1:], value)
    if items := _list(raw):
        return _each(raw, items, lambda item: _within_marked(name, item, names, value))
    before = said = _object(raw)
    if len(names) == 1 and MARK in said:
        said = {each: own for each, own in said.items() if each != MARK}
    for each in (HOLD_MARKS | ({MARK} if len(names) > 1 else set[str]())) & said.keys():
        inner = _within_marked(each, said[each], names, value)
        said = said if inner is said[each] else {**said, each: inner}
    return raw if said is before else raw_json(said)


def _each(raw: msgspec.Raw, items: Sequence[msgspec.Raw], left_of: Callable[[msgspec.Raw], msgspec.Raw]) -> msgspec.Raw:
    """Return a list, ``raw``, with what is left of each object; ``raw`` itself if nothing was left out."""
    left = [left_of(item) if _is_object(item) else item for item in items]
    return raw_json(left) if any(new is not old for new, old in zip(left, items, strict=True)) else raw


def _is_thought(raw: msgspec.Raw) -> bool:
    return _is_object(raw) and bytes(_object(raw).get("thought", b"")) == b"true"


def _is_object(raw: msgspec.Raw) -> bool:
    """Whether something in a list may have members: no API has lists in lists."""
    return bytes(memoryview(raw)[:1]) == b"{"


def _object(raw: msgspec.Raw) -> dict[str, msgspec.Raw]:
    try:
        return _objects.decode(raw) if bytes(raw).lstrip()[:1] == b"{" else {}
    except UNREADABLE:
        return {}


def _list(raw: msgspec.Raw) -> list[msgspec.Raw]:
    try:
        return _lists.decode(raw) if bytes(raw).lstrip()[:1] == b"[" else []
    except UNREADABLE:
        return []
