"""``POST /v1/responses/compact`` where not every deployment can read it: the answering model writes a summary."""

from functools import partial
from typing import Any

import msgspec

from gateway.api.endpoints.responses import read_response
from gateway.api.request import ParsedRequest
from gateway.core.errors import ApiError
from gateway.fleet import Fleet
from gateway.http import Contents
from providers.dialects import items_of, joined, may_have_others, raw_json

_TRIGGER = b'{"type":"compaction_trigger"}'
_FALSE = msgspec.Raw(b"false")
_NOT_ASKED = frozenset({"background", "stream", "text"})
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS = msgspec.json.Decoder(list[dict[str, Any]])


def passes_unread(fleet: Fleet, parsed: ParsedRequest, *, adhoc: bool) -> bool:
    """Whether a request to compact goes to each deployment of its model and fallbacks as it is.

    If not, a response is requested instead, as deployments can read it; those with ``compact`` come first. Items of
    another vendor's model, as thoughts of Claude's, are a 400 there. ``adhoc``: the client may name deployments in
    place of a model.
    """
    return not may_have_others(parsed.fields) and _all_compact(fleet, parsed.model, adhoc=adhoc)


def _all_compact(fleet: Fleet, model: str, *, adhoc: bool) -> bool:
    """Whether all deployments of ``model`` and its fallbacks have ``compact``, or there is no such model."""
    try:
        asked = fleet.find(model, adhoc=adhoc)
    except ApiError:
        return True
    every = [asked, *filter(None, (fleet.known(each.model) for each in asked.fallbacks))]
    return all("responses" in each.apis and each.compacts for of in every for each in of.deployments.values())


def read_compacting(contents: Contents, race_header: str | None) -> ParsedRequest:
    """Read a request to compact as one for a response, which is told as compacted.

    Raises:
        InvalidRequest: a field is invalid or missing.

    """
    parsed = read_response(_as_question(contents), race_header, store=False)
    return msgspec.structs.replace(parsed, told_as=partial(_as_compacted, given=parsed.fields["input"]))


def _as_question(contents: Contents) -> Contents:
    """Return a request to compact as a request for a response with nothing else."""
    items = items_of(contents.fields.get("input"))
    if items is None:
        return contents  # the error is raised where the field is read
    question = {name: value for name, value in contents.fields.items() if name not in _NOT_ASKED}
    return msgspec.structs.replace(
        contents, fields={**question, "input": msgspec.Raw(b"[%b]" % joined(items, _TRIGGER)), "store": _FALSE}
    )


def _as_compacted(response: bytes, given: msgspec.Raw) -> bytes:
    """Return a ``response`` with a summary in OpenAI's form: after the user's messages of ``given``."""
    answer = _OBJECT.decode(response)
    users = [item for item in _ITEMS.decode(given) if item.get("role") == "user"]
    compacted = {name: answer[name] for name in ("id", "created_at", "usage") if name in answer}
    output = [*({"type": "message", **item} for item in users), *_ITEMS.decode(answer["output"])]
    return bytes(raw_json({"object": "response.compaction", **compacted, "output": output}))
