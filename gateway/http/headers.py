"""The headers forwarded in both directions, and the gateway's own response headers."""

import json
import re
import time
from collections.abc import Mapping, Sequence
from email.utils import formatdate
from functools import lru_cache, partial
from typing import Any

from multidict import CIMultiDictProxy, istr

from gateway.core.calls import Call
from gateway.core.ids import TRACEPARENT, TRACESTATE, TraceContext, begun_by
from gateway.racing import Winner
from gateway.steering import Explanation

SERVER = "holeshot"  # without versions, which would help an attacker
_UPSTREAM = frozenset({"openai-beta", TRACEPARENT, TRACESTATE})
_UPSTREAM_NAME = re.compile(r"anthropic-[\w.-]*", re.ASCII)
_UPSTREAM_INITIALS = frozenset("aAoOtT")  # the first letter rules out most headers
_LONGEST_REQUEST_ID = 200  # characters
_LONGEST_LIST = 2000  # characters: clients choose the number of fields, proxies limit a header's length

# istr, as aiohttp stores names: any other string would be converted for each answer.
SERVER_FIELD = istr("server")
_CALL_ID = istr("x-holeshot-call-id")
_PROVIDER = istr("x-holeshot-provider")
_DEPLOYMENT = istr("x-holeshot-deployment")
_MODE = istr("x-holeshot-mode")
_LAUNCHED = istr("x-holeshot-launched")
_DROPPED = istr("x-holeshot-dropped")
LOWERED = istr("x-holeshot-lowered")  # parameters above the maximum of the model, or of the deployment
_TTFT_MS = istr("x-holeshot-ttft-ms")
_OVERHEAD_MS = istr("x-holeshot-overhead-ms")
_DEADLINE_MET = istr("x-holeshot-deadline-met")
_UPSTREAM_ID = istr("x-holeshot-upstream-request-id")
_REQUEST_ID = istr("x-request-id")
_ANTHROPICS_ID = istr("request-id")
_TRACE = istr("traceresponse")  # W3C, Trace Context HTTP Response Headers

_CLIENT_PREFIXES = ("x-ratelimit-", "anthropic-ratelimit-")
_UPSTREAM_IDS = frozenset({_REQUEST_ID, _ANTHROPICS_ID})
_RELAYED = ("content-type", "content-disposition", "content-language")  # of answers that are not raced
NARROWED = "x-holeshot-narrowed"  # why a call had fewer attempts than asked for: budget, rate_limits, …


def for_upstream(headers: Mapping[str, str], request_id: str | None) -> dict[str, str]:
    """Return the client's headers that a provider may see: never the client's key, cookies or address.

    Several lines of one header become one (RFC 9110, 5.3). A header that cannot be sent is left out: its name has other
    characters than word characters, or its value is not valid text (aiohttp keeps invalid bytes as surrogates).
    """
    passed: dict[str, str] = {}
    for key, value in headers.items():
        if (
            key[:1] in _UPSTREAM_INITIALS
            and ((name := key.lower()) in _UPSTREAM or _UPSTREAM_NAME.fullmatch(name) is not None)
            and value.isprintable()
        ):
            passed[name] = f"{passed[name]}, {value}" if name in passed else value
    if request_id is not None:
        passed[_REQUEST_ID] = request_id
    return passed


def trace(headers: CIMultiDictProxy[str]) -> TraceContext | None:
    """Return the client's trace; None without a trace, or for an invalid one."""
    return begun_by(headers.getall(TRACEPARENT, ()), headers.getall(TRACESTATE, ())) if TRACEPARENT in headers else None


def request_id(headers: Mapping[str, str]) -> str | None:
    """Return the client's request id; None without an id, or if the id must not be logged."""
    sent_id = headers.get(_REQUEST_ID)
    return sent_id if sent_id and len(sent_id) <= _LONGEST_REQUEST_ID and sent_id.isprintable() else None


def identifying(request_id: str) -> dict[str, str]:
    """Return the response headers in which the SDKs of OpenAI and Anthropic look for the request's id."""
    return {_REQUEST_ID: request_id, _ANTHROPICS_ID: request_id}


def for_client(winner: Winner) -> dict[str, str]:
    """Return an answered call's response headers, in lower case: the gateway's own and those allowed from upstream."""
    headers = of_answer(winner.call, winner.provider, winner.deployment, winner.launched, winner.exchange.headers)
    if winner.ttft_ms is not None:
        headers[_TTFT_MS] = f"{winner.ttft_ms:.1f}"
    headers[_OVERHEAD_MS] = f"{winner.overhead_ms:.2f}"
    if (deadline_ms := winner.call.traits.deadline_ms) is not None and winner.ttft_ms is not None:
        headers[_DEADLINE_MET] = "true" if winner.ttft_ms <= deadline_ms else "false"
    return headers


def of_answer(call: Call, provider: str, deployment: str, launched: int, upstream: Mapping[str, str]) -> dict[str, str]:
    """Return the response headers of every answered call; ``upstream`` are the provider's response headers."""
    request_id = call.caller.envelope.request_id or call.caller.id
    headers: dict[str, str] = {
        _CALL_ID: call.caller.id,
        _REQUEST_ID: request_id,
        _ANTHROPICS_ID: request_id,
        _PROVIDER: provider,
        _DEPLOYMENT: deployment,
        _MODE: call.decision.mode,
        _LAUNCHED: str(launched),
    }
    if call.caller.trace is not None:
        headers[_TRACE] = call.caller.trace.traceparent(call.caller.id)
    if call.rendered and (rendered := call.rendered.get(deployment)) is not None:
        if rendered.dropped:
            headers[_DROPPED] = _listed(rendered.dropped)
        if rendered.lowered:
            headers[LOWERED] = _listed(rendered.lowered)
    for name, value in upstream.items():
        if name.startswith(_CLIENT_PREFIXES):
            if not call.caller.levels:  # else they would contradict the headers of the client's own limits
                headers[name] = value
        elif name in _UPSTREAM_IDS:
            headers[_UPSTREAM_ID] = value
    return headers


def left_out(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the ``headers`` of an answer that say what of the request was left out or lowered."""
    return {str(name): headers[name] for name in (_DROPPED, LOWERED) if name in headers}


def of_relayed(winner: Winner, response_headers: Mapping[str, str], body: bytes = b"") -> dict[str, str]:
    """Return the response headers of a relayed answer; ``response_headers`` report changes by the gateway.

    ``body``: a whole answer's body, which shows the type of an answer without ``content-type``.
    """
    fields, upstream = for_client(winner), winner.exchange.headers
    fields.update(response_headers)
    fields.update({name: value for name in _RELAYED if (value := upstream.get(name))})
    if "content-type" not in fields:
        is_json = body.lstrip()[:1] in {b"{", b"["}
        fields["content-type"] = "application/json" if is_json else "application/octet-stream"
    return fields


def _listed(fields: Sequence[str]) -> str:
    """Return field names as one header value: in ASCII, cut to the maximum length."""
    listed = ""
    for count, field in enumerate(fields):
        more = f"{', ' if count else ''}{field if field.isascii() and field.isprintable() else ascii(field)[1:-1]}"
        if len(listed) + len(more) > _LONGEST_LIST:
            return f"{listed}, and {len(fields) - count} more" if count else f"{len(fields)} more"
        listed += more
    return listed


_date_of = lru_cache(maxsize=1)(partial(formatdate, usegmt=True))  # the same for all answers of a second


def date() -> str:
    """Return the value of ``date`` for now."""
    return _date_of(int(time.time()))


# The response header ``x-holeshot-plan``, sent on request: the planned deployments, their delays, and why.

PLAN_HEADER = "x-holeshot-plan"
LIMIT_BYTES = 4096  # proxies refuse responses with much larger headers

_YES = frozenset({"1", "true", "yes", "explain"})


def is_wanted(headers: Mapping[str, str]) -> bool:
    """Return whether the request asks for its plan (``x-holeshot-plan: explain``)."""
    header = headers.get(PLAN_HEADER)
    return header is not None and header.lower() in _YES


def written(explanation: Explanation) -> str:
    """Return a plan as one line of ASCII JSON, with as many launches as fit into ``LIMIT_BYTES``.

    ``{"objective", "mode", "hold", "notes", "launches": [{"deployment", "delay_s", "role", "why", "score_s"}],
    "left_out", "excluded": {deployment: why}}``; and ``"width_asked", "narrowed"`` if fewer launches start than asked
    for, ``"late_s", "fallback"`` if another model is asked beside a late one. Instead of excluded deployments that do
    not fit, only their number is given.
    """
    scores = {each.deployment: round(each.score_s, 4) for each in explanation.deployments}
    launches = [
        {
            "deployment": each.deployment,
            "delay_s": round(each.delay_s, 3),
            "role": each.role,
            "why": each.why,
            "score_s": scores.get(each.deployment),
        }
        for each in explanation.launches
    ]
    head: dict[str, Any] = {"objective": explanation.objective, "mode": explanation.mode, "hold": explanation.hold}
    if explanation.narrowed is not None:
        head |= {"width_asked": explanation.width_asked, "narrowed": explanation.narrowed}
    if explanation.fallback is not None and explanation.late_s is not None:
        head |= {"late_s": round(explanation.late_s, 3), "fallback": explanation.fallback}
    whole = {**head, "notes": explanation.notes, "launches": launches}
    if excluded := explanation.excluded:
        whole["excluded"] = excluded
        head["excluded_left_out"] = len(excluded)
    if len(text := _line(whole)) <= LIMIT_BYTES:
        return text
    for count in range(len(launches), 0, -1):
        left_out = {"left_out": len(launches) - count} if count < len(launches) else {}
        text = _line({**head, "launches": launches[:count], **left_out})
        if len(text) <= LIMIT_BYTES:
            return text
    return _line({**head, "left_out": len(launches)})


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))  # in ASCII only, unlike msgspec's JSON
