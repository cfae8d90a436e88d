"""Replaces the names of recent answers in a request by their content: for responses and interactions.

For example, ``previous_response_id: "resp_1"`` becomes the items of that conversation at the beginning of ``input``.
Then the request is like any other: it names nothing stored, and may be raced and translated.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec

from gateway.access import Client
from gateway.api.bodies import LARGE_BYTES, most_bytes, read_contents, too_large
from gateway.api.context import Context
from gateway.api.provider_state import MOST_NAMES, StoredAt
from gateway.core.errors import InvalidRequest, NamesUnreachable
from gateway.http import Contents, Media, decoded, is_set
from gateway.memory import AnswerScope
from providers import UNREADABLE, Steps, aside, encoded, finished
from providers.dialects import Recalling, id_of, is_bare, single_items

_T = TypeVar("_T")
_PROMPT = "input"  # in all APIs with such names
# An item that stands for another one: by its type (``item_reference``), or because it has only an id.
_NAMING = re.compile(
    rb'"(?:item_reference|reasoning|image_generation_call)"|\{\s*(?:"type"\s*:\s*null\s*,\s*)?"id"\s*:\s*"[^"]{1,500}"\s*[,}]'
)
_NAMES = (
    b'"id"',
    b'"item_reference"',
    b'"reasoning"',
    b'"image_generation_call"',
)  # each such item has one of these texts, and few prompts have any
_SLICE_BYTES = 2**17  # a search takes two milliseconds
_STRADDLING_BYTES = 4096  # a match that begins in a slice ends within this length
_AT_ONCE = 50  # lookups in the memory at the same time
_NOTHING = (b"", b"null", b'""')
_optional_text = msgspec.json.Decoder(str | None)


def scope_of(client: Client, recalling: Recalling) -> AnswerScope:
    """Return the scope of a client's answers in one API; answers in it are hidden from other clients."""
    tenant = "" if client.tenant is None else " ".join(sorted(client.tenant.digests))
    return AnswerScope(client.name, tenant, recalling.kept_as)


class RecalledRequest(msgspec.Struct, frozen=True):
    """A request with content in place of names, and the answer that the request continues, if any."""

    contents: Contents
    follows: str | None = None


async def recalled(  # noqa: PLR0917 - of one request
    context: Context,
    client: Client,
    contents: Contents,
    count: Callable[[int], None],
    media: Media | None,
    recalling: Recalling,
) -> RecalledRequest:
    """Return a request in which known recent answers are in place of their names; other names stay.

    ``count``: counts the bytes of the longer body. ``media``: the media to look for in it. ``recalling``: how the API
    names earlier answers.

    Raises:
        InvalidRequest: the request continues an answer with something other than items.
        BodyTooLarge, TooManyBodies, Overloaded: answer and request together are too long.

    """
    fields = contents.fields
    raw = fields.get(recalling.previous)
    previous = None if raw is None or not is_set(raw) else decoded(recalling.previous, raw, _optional_text)
    prompt = fields.get(_PROMPT)
    size = 0 if prompt is None else len(memoryview(prompt))
    if not recalling.names_items:
        names_items = False
    elif prompt is None or size <= _SLICE_BYTES:  # nearly always, so without a call
        names_items = prompt is not None and _NAMING.search(prompt) is not None
    else:
        names_items = await context.body_work.run(_naming_steps(prompt))
    if previous is None and not names_items:
        return RecalledRequest(contents)
    scope, before = scope_of(client, recalling), None
    if previous is not None:
        before = await context.memory.conversation(scope, previous)
    items = await _items(prompt, recalling)
    if items is None:
        if before is not None:
            raise InvalidRequest("'input' must be a string, or an array of items", param="input")
        return RecalledRequest(contents)
    named = await _in_slices(context, _named_steps(items), size) if names_items else ()
    items_found = await _found(context, scope, named) if named else {}
    if before is None and not items_found:
        return RecalledRequest(contents)
    all_items = [*(before or ()), *(items_found.get(at, item) for at, item in enumerate(items))]
    changed = {name: value for name, value in fields.items() if before is None or name != recalling.previous}
    body = await _in_slices(context, _body_steps(changed, all_items), sum(map(len, all_items)))
    if len(body) > most_bytes(context):
        raise too_large(context)
    count(len(body))
    again = await read_contents(
        body,
        context.body_work,
        _PROMPT,
        media,
        most_values=context.settings.limits.max_values,
    )
    return RecalledRequest(again, previous if before is not None else None)


def _body_steps(fields: dict[str, msgspec.Raw], items: Sequence[bytes]) -> Steps[bytes]:
    """Return a request's body with these items."""
    joined = b",".join(items)
    yield
    fields[_PROMPT] = msgspec.Raw(b"[%b]" % joined)
    del joined
    yield
    return encoded(fields)


async def _in_slices(context: Context, steps: Steps[_T], size: int) -> _T:
    """Return the result of ``steps``; if ``size`` is large, other tasks run between steps."""
    return finished(steps) if size <= _SLICE_BYTES else await context.body_work.run(steps)


async def _items(prompt: msgspec.Raw | None, recalling: Recalling) -> list[bytes] | None:
    """Return the items of a prompt; None if the prompt is neither a text nor an array."""
    new = recalling.items_of(prompt)
    if new is None:
        return None
    try:
        return single_items(new) if len(new) <= LARGE_BYTES else await aside(single_items, new)
    except UNREADABLE:
        return None


class _Asked(msgspec.Struct, gc=False):
    type: str | None = None
    role: msgspec.Raw | None = None
    result: msgspec.Raw = msgspec.Raw()


_asked = msgspec.json.Decoder(_Asked)
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _naming_steps(data: bytes | msgspec.Raw) -> Steps[bool]:
    """Return whether ``data`` may have an item that stands for another one."""
    view = memoryview(data)
    size = len(view)
    if size <= _SLICE_BYTES:
        return _NAMING.search(data) is not None
    for at in range(0, size, _SLICE_BYTES):
        part = bytes(view[at : at + _SLICE_BYTES + _STRADDLING_BYTES])
        if any(name in part for name in _NAMES) and _NAMING.search(part) is not None:
            return True
        yield
    return False


def _named_steps(items: Sequence[bytes]) -> Steps[list[tuple[int, str]]]:
    """Return the place of each item that stands for another one, and the other's id."""
    named, read_bytes = [], 0
    for at, item in enumerate(items):
        if (yield from _naming_steps(item)) and (name := _named(item)) is not None:
            named.append((at, name))
        read_bytes += len(item)
        if read_bytes >= _SLICE_BYTES:
            read_bytes = 0
            yield
    return named


def _named(item: bytes) -> str | None:
    """Return the id of the item that an item stands for; None if the item has content."""
    try:
        reference = _asked.decode(item)
        if reference.type == "item_reference" or (reference.type is None and reference.role is None):
            return id_of(item)
        if reference.type == "image_generation_call":  # the guide to image generation, "Further edit": an id is enough
            return id_of(item) if bytes(memoryview(reference.result)[:9]).strip() in _NOTHING else None
        return id_of(item) if reference.type == "reasoning" and is_bare(_object.decode(item)) else None
    except UNREADABLE:
        return None


async def _found(context: Context, scope: AnswerScope, named: Sequence[tuple[int, str]]) -> dict[int, bytes]:
    """Return the known items by their place in the request."""
    items: dict[int, bytes] = {}
    for first in range(0, min(MOST_NAMES, len(named)), _AT_ONCE):
        part = named[first : min(MOST_NAMES, first + _AT_ONCE)]
        for (at, _), item in zip(
            part, await asyncio.gather(*(context.memory.item(scope, name) for _, name in part)), strict=True
        ):
            if item is not None:
                items[at] = item
    return items


async def kept_at(
    context: Context, client: Client, prompt: msgspec.Raw | None, recalling: Recalling | None
) -> StoredAt | None:
    """Return where the items are stored that an input names only by id; None: unknown.

    A provider does not find them with the key of another account.
    """
    if recalling is None or not recalling.names_items or prompt is None or context.settings.provider_state == "none":
        return None
    size = len(memoryview(prompt))
    if not await _in_slices(context, _naming_steps(prompt), size) or (items := await _items(prompt, recalling)) is None:
        return None
    named = await _in_slices(context, _named_steps(items), size)
    for _, name in named[: -_AT_ONCE - 1 : -1]:  # the latest first, as the conversation continues it
        maker = None
        with suppress(NamesUnreachable):  # then any deployment is asked, as for unknown items
            maker = await context.responses.maker(client.name, name)
        if maker is not None and client.made(maker, context.fleet):
            return StoredAt(maker.deployment, _PROMPT, key_name=maker.key_name)
    return None
