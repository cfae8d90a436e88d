"""Betas: words in a header, or in a list of the body, by which a client says how the request is written.

For example ``anthropic-beta: context-management-2025-06-27``.

A vendor that does not know a beta refuses the request. A beta is a hint, and is left out, unless the body has a field
that only this beta has, and that the request cannot lose.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from providers.bodies import raw_json
from providers.dialects import Fields
from providers.refusals import UNREADABLE
from providers.vendors import may_go

HEADERS: Final = ("anthropic-beta", "openai-beta")
IN_BODY: Final = "anthropic_beta"  # a list, at Bedrock
NAMES: Final = frozenset({*HEADERS, IN_BODY})
_SHOWN: Final = re.compile(r"[\w.=-]{1,64}", re.ASCII)  # may stand in the log, as a client's short values may
_list = msgspec.json.Decoder(list[str])


class Need(NamedTuple):
    """A field that only a beta has: how the beta's name begins, the field's path, and the field's sign in JSON."""

    beta: str
    field: str
    sign: bytes = b""  # none: the field is at the top level


# Of the betas that are no part of the API without their header: the fields of types/beta/message_create_params.py of
# github.com/anthropics/anthropic-sdk-python, and platform.claude.com/docs/en/api/beta-headers, read on 2026-11-29.
NEEDS: Final = (
    Need("compact", "compaction"),
    Need("compact", "context_management"),
    Need("computer-use", "tools.type", b'"computer_2'),  # a toolset (``toolsets.json``) needs no beta
    Need("context-management", "context_management"),
    Need("fallback-credit", "fallback_credit_token"),
    Need("fast-mode", "speed"),
    Need("files-api", "messages.content.source.file_id", b'"file_id"'),
    Need("mcp-client", "mcp_servers"),
    Need("message-threads", "thread"),
    Need("mid-conversation-output-config", "messages.output_config", b'"output_config"'),
    Need("per-turn-control", "messages.output_config", b'"output_config"'),
    Need("prompt-caching-scope", "messages.cache_control.scope", b'"scope"'),
    Need("prompt-caching-scope", "system.cache_control.scope", b'"scope"'),
    Need("prompt-caching-scope", "tools.cache_control.scope", b'"scope"'),
    Need("server-side-fallback", "fallbacks"),
    Need("skills", "container.skills", b'"skills"'),
    Need("structured-outputs", "output_format"),
    Need("task-budgets", "output_config.task_budget", b'"task_budget"'),
    Need("thinking-binding-controls", "thinking.block_binding", b'"block_binding"'),
    Need("user-profiles", "billing_policy"),
)


class AskedBetas(NamedTuple):
    """The betas for which a request asks in one place."""

    place: str  # one of ``NAMES``
    betas: tuple[str, ...]


def asked_for(headers: Mapping[str, str], fields: Fields) -> Iterator[AskedBetas]:
    """Yield the betas of a request, by the header or field that has them."""
    for name in HEADERS:
        if betas_sent := headers.get(name):
            yield AskedBetas(name, tuple(filter(None, map(str.strip, betas_sent.split(",")))))
    if IN_BODY in fields and (betas := _listed(fields[IN_BODY])):
        yield AskedBetas(IN_BODY, betas)


def needed(betas: Iterable[str], fields: Fields) -> frozenset[str]:
    """Return the ``betas`` that a field of this request needs."""
    return frozenset(beta for beta, _ in _needs(betas, fields))


def demanded(betas: Iterable[str], fields: Fields) -> frozenset[str]:
    """Return the ``betas`` that a field needs which the request may not lose (``mcp_servers``)."""
    return frozenset(beta for beta, need in _needs(betas, fields) if not may_go(need.field, fields))


def is_demanded(place: str, beta: str, fields: Fields, headers: Mapping[str, str]) -> bool:
    """Whether a request asks in this place for the betas in ``beta``, joined as by ``written``, and needs one."""
    refused = frozenset(beta.split(","))
    lists = (each.betas for each in asked_for(headers, fields) if each.place == place)
    return any(refused <= frozenset(betas) for betas in lists) and bool(demanded(refused, fields))


def _needs(betas: Iterable[str], fields: Fields) -> Iterator[tuple[str, Need]]:
    for beta in betas:
        yield from ((beta, need) for need in NEEDS if beta.startswith(need.beta) and _has(fields, need))


def written(betas: Iterable[str]) -> str:
    """Return betas as a fact has them; "" if one is no short word: the log may show short words only."""
    in_order = sorted(set(betas))
    return ",".join(in_order) if all(map(_SHOWN.fullmatch, in_order)) else ""


def without(place: str, said: str, fields: Fields, headers: Mapping[str, str]) -> "ReducedRequest":
    """Return a request without the betas of a fact, if the request asks for all of them.

    Which of the fact's betas was refused is unknown. ``said``: the betas as ``written`` has them; "": all betas. A
    beta without which the request loses something stays.
    """
    betas_asked = next((each.betas for each in asked_for(headers, fields) if each.place == place), ())
    refused = frozenset(said.split(",")) if said else frozenset(betas_asked)
    if not refused <= frozenset(betas_asked):
        return ReducedRequest(fields, headers)
    left_out = refused - demanded(refused, fields)
    left = [beta for beta in betas_asked if beta not in left_out]
    told_paths = tuple(
        f"{place}: {beta}" if _SHOWN.fullmatch(beta) else place for beta in betas_asked if beta in left_out
    )
    if place == IN_BODY:
        others = {name: value for name, value in fields.items() if name != place}
        listed = {place: raw_json(left)} if left else {}
        return ReducedRequest({**others, **listed}, headers, told_paths)
    others_said = {name: value for name, value in headers.items() if name != place}
    return ReducedRequest(fields, {**others_said, **({place: ",".join(left)} if left else {})}, told_paths)


class ReducedRequest(NamedTuple):
    """The rest of a request, and the parts that the client is told were left out."""

    fields: Fields
    headers: Mapping[str, str]
    told: tuple[str, ...] = ()


def quotable(headers: Mapping[str, str]) -> list[str]:
    """Return the client's own texts in these headers, which a refusal may quote: parts that are no name of a beta."""
    parts = (part.strip() for name in HEADERS for part in headers.get(name, "").split(","))
    return [part for part in parts if part and not _SHOWN.fullmatch(part)]


def _has(fields: Fields, need: Need) -> bool:
    value = fields.get(need.field.partition(".")[0])
    return value is not None and bytes(value) != b"null" and need.sign in bytes(value)


def _listed(value: msgspec.Raw) -> tuple[str, ...]:
    try:
        return tuple(_list.decode(value))
    except UNREADABLE:
        return ()
