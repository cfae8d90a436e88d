"""Takeover: an answer that breaks is finished by another deployment, so that its client sees one answer."""

from collections.abc import Mapping
from contextlib import suppress

import msgspec

from gateway.attempt_records import Role
from gateway.calls import Call, CallRecord, Mode
from gateway.fleet.deployment import Deployment
from gateway.fleet.model import Model
from gateway.ingress.entry import Entry
from gateway.ingress.streaming import StreamingSink
from gateway.racing.continuing_sink import ContinuingSink
from gateway.racing.delivered import Delivered
from gateway.racing.open_call import FINISHED, Broken, OpenCall, Unanswered
from gateway.racing.race import Race
from gateway.racing.seam import Seam, split
from gateway.racing.sink import ClientGone
from gateway.settings.takeover import When
from gateway.steering.plans import Launch, Plan
from providers.dialects.continuing import Begun
from providers.errors import ErrorKind, UpstreamError

CANDIDATES = 2
COMMENT_S = 2.0  # between two comments while the client waits for more


def delivered_of(entry: Entry, open_call: OpenCall) -> Delivered | None:
    """Return what keeps a call's answer until it is whole; None if it is to end where it breaks."""
    if entry.model.takeover.when is not When.ALWAYS:
        return None
    continuing = entry.call.dialect.continuing
    obstacle = "dialect" if continuing is None else continuing.obstacle(entry.call.fields)
    return Delivered(open_call, obstacle)


async def finish(entry: Entry, open_call: OpenCall, sink: StreamingSink, broken: Broken) -> CallRecord | Broken:
    """Have another deployment finish an answer; if none does, tell its client that it broke off."""
    continuing = entry.call.dialect.continuing
    assert continuing is not None  # else the answer would not have been kept
    begun = sink.begun(continuing)
    open_call.broken.append(broken)
    candidates = _candidates(entry, open_call, broken, begun)
    ending: CallRecord | Unanswered | Broken = Unanswered()
    if begun.obstacle is not None or not candidates:
        open_call.takeover = begun.obstacle or "nobody"
    else:
        open_call.takeover = FINISHED
        await sink.close()
        sink.keep_alive(min(COMMENT_S, entry.model.keepalive_s or COMMENT_S))
        ending = await _in_time(_race(entry, open_call, sink, begun, candidates), entry.model.takeover.within_s)
        await sink.close()
    if isinstance(ending, Unanswered):
        open_call.broken.pop()  # nobody went on from here
        if open_call.takeover == FINISHED:
            open_call.takeover = "failed"
        ending = open_call.finish(
            broken.attempt,
            status_code=200,
            error_kind=broken.error.kind,
            ttft_ms=broken.times.ttft_ms,
            overhead_ms=broken.times.overhead_ms,
            alone=broken.times.alone,
        )
        with suppress(ClientGone):
            await sink.fail(broken.error)
    return ending


async def _in_time(race: Race, within_s: float) -> CallRecord | Unanswered | Broken:
    """Run the race; give it up if nobody goes on in time, whatever holds it up: a seat, or a word that does not end."""
    error = UpstreamError(ErrorKind.TTFT_TIMEOUT, f"did not continue the answer within {within_s:g} s")
    timer = race.loop.call_later(within_s, race.give_up, error)
    try:
        return await race.run()
    finally:
        timer.cancel()


def _candidates(entry: Entry, open_call: OpenCall, broken: Broken, begun: Begun) -> list[Deployment]:
    """Return who may go on, in the plan's order: only those that are known to, unless nothing was delivered yet.

    Those that have failed in this call are last.
    """
    plan, dialect = entry.plan, entry.call.dialect
    names = dict.fromkeys([*(launch.deployment for launch in plan.launches), *plan.rest])
    found = []
    for name in names:
        deployment = entry.model.deployments[name]
        is_free = name != broken.attempt.deployment and name not in plan.tripped
        if is_free and (not begun.text or deployment.can_continue(dialect)):
            found.append(deployment)
    failed = {attempt.deployment for attempt in open_call.attempts if attempt.error_kind is not None}
    return sorted(found, key=lambda each: each.name in failed)[:CANDIDATES]


def _race(entry: Entry, open_call: OpenCall, sink: StreamingSink, begun: Begun, candidates: list[Deployment]) -> Race:
    continuing = entry.call.dialect.continuing
    assert continuing is not None
    call = entry.call
    # A token has at least one byte: a provider that reports more than it has sent must not use up the call's limit.
    spent = min(sum(each.attempt.completion_tokens or 0 for each in open_call.broken), len(begun.text.encode()))
    prefix, tail = split(begun.text)
    wordings = {each.name: _wording(each, call, prefix, spent) for each in candidates}
    within_s = entry.model.takeover.within_s
    going_on = open_call.call
    open_call.continue_as(msgspec.structs.replace(going_on, wordings={**call.wordings, **wordings}))
    # The first has all of the call's time; the next starts beside it after half of it, or as soon as it has failed.
    delays_s = (number * within_s / len(candidates) for number in range(len(candidates)))
    launches = (Launch(each.name, delay_s, Role.TAKEOVER) for each, delay_s in zip(candidates, delays_s, strict=True))
    plan = Plan(launches=tuple(launches), rest=(), mode=Mode.SINGLE)
    stops = continuing.stops(call.fields)
    answers = call.dialect.answers
    repeating = {each.name for each in candidates if each.way_to_continue(call.dialect) == "repeated_prefix"}

    def new_seam(deployment: str) -> Seam:
        repeated = begun.text if deployment in repeating else tail
        return Seam(repeated, before=begun.text, stops=stops)

    def usage(sent: int | None, tokens: int) -> tuple[int, int] | None:
        if not (call.wants_usage or continuing.always_counts):
            return None
        prompt = open_call.broken[0].attempt.prompt_tokens
        if prompt is None:  # the others were sent what was delivered as well
            prompt = call.prompt_tokens if sent is None else max(0, sent - spent)
        return prompt, spent + tokens

    ending = ContinuingSink(sink, continuing.splice(begun), new_seam, answers, usage)
    return Race(open_call, _hurried(entry.model, candidates, within_s), plan, ending, permit=lambda _: True)


def _wording(deployment: Deployment, call: Call, prefix: str, spent: int) -> Mapping[str, msgspec.Raw]:
    """Return what a deployment is sent, in the dialect that it is asked in."""
    fields = call.wordings.get(deployment.name, call.fields)
    continuing = deployment.spoken_to(call.dialect).continuing
    if continuing is None:
        return fields
    return continuing.request(fields, prefix, deployment.way_to_continue(call.dialect), spent)


def _hurried(model: Model, candidates: list[Deployment], within_s: float) -> Model:
    """Return the model with so little time for a first token: a client is waiting in the middle of an answer."""
    hurried = {}
    for each in candidates:
        clocks = msgspec.structs.replace(
            each.clocks, connect_s=min(each.clocks.connect_s, within_s), ttft_s=min(each.clocks.ttft_s, within_s)
        )
        hurried[each.name] = msgspec.structs.replace(each, clocks=clocks)
    return msgspec.structs.replace(model, deployments={**model.deployments, **hurried})
