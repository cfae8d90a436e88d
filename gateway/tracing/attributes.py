"""The attributes of spans: the conventions' where they have one, else ``holeshot.`` with the ledger's column.

Nothing here is of a prompt or an answer, nor of a provider's error message, which may quote one.
"""

from gateway.attempt_records import AttemptRecord, TokensSource
from gateway.calls import CallRecord
from gateway.tracing.naming import RACED, Peer, operation

Value = str | bool | int | float | tuple[str, ...]
Attributes = dict[str, Value]

# What the ledger has besides is in it, by the call's id: an attribute costs 2 µs.
_CALL = (
    "client", "request_id", "answered_model", "overhead_ms", "prompt_tokens", "completion_tokens", "cost_usd",
    "duplicate_cost_usd", "alone_ms", "deadline_met", "ttft_ms", "error_kind", "region",
)  # fmt: skip
_ATTEMPT = (
    "connect_ms", "headers_ms", "ttft_ms", "censored_at_ms", "overtaken_at_ms", "predicted_ms", "decode_tps",
    "itl_max_ms", "cost_usd", "in_flight", "provider_request_id", "flaw",
)  # fmt: skip

_COUNTED = frozenset({"input_tokens", "output_tokens"})  # others only if there are any


def of_call(record: CallRecord) -> Attributes:
    """Return the attributes of a call's span.

    Tokens are ``holeshot.*`` here: as ``gen_ai.usage.*`` they would be counted twice, with those of the attempts.
    """
    winner = next((each for each in record.attempts if each.id == record.winner_attempt_id), None)
    attributes = _requested(record, record.model)
    attributes |= {
        "http.response.status_code": record.status_code,
        "holeshot.call_id": record.id,
        "holeshot.endpoint": record.endpoint,
        "holeshot.mode": str(record.mode),
        "holeshot.launched": record.launched,
    }
    if record.streamed:
        attributes["gen_ai.request.stream"] = True
        if record.ttft_ms is not None:
            attributes["gen_ai.response.time_to_first_chunk"] = record.ttft_ms / 1000
    if winner is not None:
        attributes["holeshot.winner"] = winner.deployment
        _add_response(attributes, winner)
    _add(attributes, record, _CALL)
    return attributes


def of_attempt(attempt: AttemptRecord, call: CallRecord, peer: Peer | None) -> Attributes:
    """Return the attributes of an attempt's span; ``peer`` is its provider, None if a reload has removed that."""
    attributes = _requested(call, attempt.deployment.partition("/")[2])
    attributes |= {
        "gen_ai.provider.name": attempt.provider if peer is None else peer.name,
        "holeshot.attempt_id": attempt.id,
        "holeshot.attempt": attempt.number,
        "holeshot.deployment": attempt.deployment,
        "holeshot.role": str(attempt.role),
        "holeshot.outcome": str(attempt.outcome),
        "holeshot.is_censored": attempt.censored_at_ms is not None,
    }
    if attempt.audited:
        attributes["holeshot.audited"] = True
    if attempt.sends is not None and attempt.sends > 1:
        attributes["holeshot.sends"] = attempt.sends
    if peer is not None and peer.address is not None and peer.port is not None:
        attributes["server.address"], attributes["server.port"] = peer.address, peer.port
    if call.streamed or call.endpoint in RACED:
        attributes["gen_ai.request.stream"] = True
        if attempt.ttft_ms is not None:
            attributes["gen_ai.response.time_to_first_chunk"] = attempt.ttft_ms / 1000
    if attempt.status_code is not None:
        attributes["http.response.status_code"] = attempt.status_code
    for name, tokens in (
        ("input_tokens", attempt.prompt_tokens),
        ("output_tokens", attempt.completion_tokens),
        ("reasoning.output_tokens", attempt.reasoning_tokens),
        ("cache_read.input_tokens", attempt.cached_tokens),
        ("cache_write.input_tokens", attempt.cache_write_tokens),
    ):
        if tokens or (tokens is not None and name in _COUNTED):
            attributes[f"gen_ai.usage.{name}"] = tokens
    if attempt.tokens_source not in {None, TokensSource.REPORTED}:
        attributes["holeshot.tokens_source"] = str(attempt.tokens_source)
    _add_response(attributes, attempt)
    _add(attributes, attempt, _ATTEMPT)
    return attributes


def _requested(record: CallRecord, model: str) -> Attributes:
    attributes: Attributes = {"gen_ai.operation.name": operation(record.endpoint), "gen_ai.request.model": model}
    if record.max_tokens is not None:
        attributes["gen_ai.request.max_tokens"] = record.max_tokens
    if record.temperature is not None:
        attributes["gen_ai.request.temperature"] = float(record.temperature)
    return attributes


def _add_response(attributes: Attributes, attempt: AttemptRecord) -> None:
    if attempt.model_version is not None:
        attributes["gen_ai.response.model"] = attempt.model_version
    if attempt.finish_reason is not None:
        attributes["gen_ai.response.finish_reasons"] = (attempt.finish_reason,)


def _add(attributes: Attributes, record: CallRecord | AttemptRecord, columns: tuple[str, ...]) -> None:
    for column in columns:
        value = getattr(record, column)
        if value is not None:
            attributes[f"holeshot.{column}"] = str(value) if isinstance(value, str) else value
