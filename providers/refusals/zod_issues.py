"""Zod's lists of what is wrong, also of unions: those issues that come nearest to what was sent."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

_DEEPEST: Final = 8  # unions within unions
# What tells the kinds of a union apart, and the codes of a value that is of another kind.
_DISCRIMINATORS: Final = frozenset({"type", "role", "object"})
_OF_ANOTHER_KIND: Final = ("invalid_literal", "invalid_value", "invalid_enum", "invalid_union")


def issues_in(value: Any) -> list[dict[str, Any]]:
    """Return the issues of a list of zod's, of a union those of the kind that comes nearest; []: no such list."""
    if not isinstance(value, list) or not all(isinstance(each, dict) and "error" not in each for each in value):
        return []
    return list(_leaves(value, (), 0))


def _leaves(issues: Sequence[Any], around: tuple[Any, ...], depth: int) -> Iterator[dict[str, Any]]:
    for issue in issues:
        if not isinstance(issue, dict):
            continue
        own = issue.get("path")
        path = (*around, *own) if isinstance(own, list) else around
        # zod 4 has paths within a union that begin at the union; those of zod 3 begin at the request.
        kinds = [[*_leaves(each, path, depth + 1)] for each in _lists_in(issue.get("errors")) if depth < _DEEPEST]
        kinds += [[*_leaves(each, (), depth + 1)] for each in _issues_of_unions(issue) if depth < _DEEPEST]
        if nearest := min(filter(None, kinds), key=lambda kind: _distance(kind, path), default=None):
            yield from nearest
        elif isinstance(own, list):
            yield {**issue, "path": [*path]}
        else:
            yield issue


def _lists_in(value: Any) -> list[list[Any]]:
    return [each for each in value if isinstance(each, list)] if isinstance(value, list) else []


def _issues_of_unions(issue: dict[str, Any]) -> Iterator[list[Any]]:
    """Yield zod 3's issues for each kind of a union."""
    kinds = issue.get("unionErrors")
    for each in kinds if isinstance(kinds, list) else ():
        if isinstance(each, dict) and isinstance(issues := each.get("issues"), list):
            yield issues


def _distance(issues: Sequence[dict[str, Any]], union: tuple[Any, ...]) -> tuple[bool, int, int]:
    """Return how far a value is from one kind of a union: whether of another kind, issues, and how deep these are."""
    paths = [path if isinstance(path := each.get("path"), list) else [] for each in issues]
    is_other = any(
        (each.get("code") == "invalid_type" and path == [*union])
        or (
            str(each.get("code")).startswith(_OF_ANOTHER_KIND)
            and any(path == [*union, name] for name in _DISCRIMINATORS)
        )
        for each, path in zip(issues, paths, strict=True)
    )
    return is_other, len(issues), -max(map(len, paths))
