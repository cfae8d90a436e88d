"""Builds the records of attempts that are not raced, and decides whose prices apply."""

from collections.abc import Mapping, Sequence

import msgspec

from gateway.attempt_records import AttemptRecord, AttemptStart, Outcome
from gateway.calls import Call
from gateway.fleet.deployment import Deployment
from gateway.racing.attempt_recording import request_id, short
from gateway.racing.measurement import MOST_TOKENS, plausible
from gateway.racing.milliseconds import milliseconds
from providers.errors import UpstreamError
from providers.exchange import Answer
from providers.rate_limits import headroom
from providers.sendings import Sendings
from providers.whole_answers import NOTHING, Reported


class RelayedAttempt(msgspec.Struct, frozen=True):
    """A running request at one deployment."""

    start: AttemptStart
    deployment: Deployment
    began: float
    sendings: Sendings


def relayed_record(
    call: Call,
    attempt: RelayedAttempt,
    outcome: Outcome,
    now: float,
    *,
    answer: Answer | None = None,
    said: Reported = NOTHING,
    error: UpstreamError | None = None,
    ttft_s: float | None = None,
) -> AttemptRecord:
    """Return the record of an attempt that ended ``now``; ``said`` is what its answer has reported so far."""
    is_censored = outcome is Outcome.CLIENT_GONE and ttft_s is None
    first_ms = None if ttft_s is None else milliseconds(ttft_s)
    usage, source = (None, None) if said.usage is None else plausible(said.usage, MOST_TOKENS)
    return AttemptRecord(
        **msgspec.structs.asdict(attempt.start),
        call_id=call.id,
        client=call.client,
        api=call.endpoint,
        size_class=call.prompt_class.size,
        win_on=call.win_on,
        token_ms=first_ms,
        outcome=outcome,
        key_name=attempt.sendings.key_name,
        model_version=short(said.model, answer.secrets) if answer else None,
        provider_request_id=request_id(answer.headers) if answer else None,
        sends=attempt.sendings.times,
        connect_ms=answer.connect_ms if answer else None,
        headers_ms=answer.headers_ms if answer else None,
        ttft_ms=first_ms,
        censored_at_ms=milliseconds(now - attempt.began) if is_censored else None,
        status_code=answer.status if answer else (error.status if error else None),
        error_kind=error.kind if error else None,
        error_message=error.message if error else None,
        retry_after_s=error.retry_after_s if error else None,
        headroom=headroom(answer.headers) if answer else None,
        prompt_tokens=usage.prompt_tokens if usage else None,
        completion_tokens=usage.completion_tokens if usage else None,
        tokens_source=source,
    )


def billed(
    deployments: Mapping[str, Deployment], attempts: Sequence[AttemptRecord], *, is_priced: bool
) -> Mapping[str, Deployment]:
    """Return the deployments of the ``attempts``; without their price if it does not apply to these tokens."""
    having = {}
    for attempt in attempts:
        deployment = deployments[attempt.deployment]
        # The table has prices of text: without an output price, images would look nearly free.
        is_unknown = (
            bool(attempt.completion_tokens) and deployment.price is not None and not deployment.price.output_usd
        )
        if is_unknown or not is_priced:
            deployment = msgspec.structs.replace(deployment, price=None)
        having[attempt.deployment] = deployment
    return having
