"""Calls as tests need them: of a few facts, each by its name alone; the rest is as usual."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from gateway.core.calls import Call, Caller, CallRequest, CallTraits, Decision, Envelope, Mode, Objective
from gateway.core.prompt_classes import answer_class

_USUAL: dict[str, Any] = {
    "id": "call",
    "received_at": 0.0,
    "started_at": datetime(2026, 1, 1, tzinfo=UTC),
    "replica": "test",
    "model": "m",
    "fields": {},
    "wants_usage": False,
    "endpoint": "chat.completions",
    "mode": Mode.SINGLE,
    "objective": Objective.FIRST_TOKEN,
    "prompt_class": answer_class(0),
    "prompt_tokens": 10,
}
_PARTS: dict[str, type[msgspec.Struct]] = {
    "request": CallRequest,
    "caller": Caller,
    "decision": Decision,
    "traits": CallTraits,
}


def made_call(**facts: Any) -> Call:
    """Return the call that these ``facts`` make: fields of its parts, and ``rendered``."""
    known = _USUAL | facts
    known["envelope"] = Envelope(known.pop("headers", {}), known.pop("request_id", None))
    request, caller, decision, traits = (_of(part, known) for part in _PARTS.values())
    strange = known.keys() - {"rendered"} - {name for part in _PARTS.values() for name in part.__struct_fields__}
    assert not strange, f"no part of a call has {strange}"
    return Call(request, caller, decision, traits, known.get("rendered", {}))


def with_facts(call: Call, **facts: Any) -> Call:
    """Return ``call`` with other ``facts``, in whichever of its parts they are."""
    parts = {name: msgspec.structs.asdict(getattr(call, name)) | facts for name in _PARTS}
    return msgspec.structs.replace(call, **{name: _of(_PARTS[name], known) for name, known in parts.items()})


def _of(part: Any, known: dict[str, Any]) -> Any:
    return part(**{name: known[name] for name in part.__struct_fields__ if name in known})
