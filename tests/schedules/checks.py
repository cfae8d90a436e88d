"""What must hold after every run, whatever happened in it. Each check yields what is wrong, in words."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

import msgspec

from gateway.core.attempts import AttemptRecord, Outcome, Role, WinOn
from gateway.core.calls import CallRecord
from gateway.core.errors import ShuttingDown
from gateway.limits.quota import ROUNDING
from gateway.racing import EXTRA_ROLES
from gateway.racing.hold import HOLD_MAX_S
from gateway.racing.services import MOST_RESCUES
from providers import ErrorKind, events
from tests.app.gateway.broken_answers import text_in
from tests.schedules.clients import Seen
from tests.schedules.providers import DONE, Asked, complete
from tests.schedules.scenario import MODEL
from tests.schedules.simulation import Evidence
from tests.support.behaviour import NEVER_S

REFUSED = re.compile(r"^holeshot_refusals_total\{.*\} (.+)$", re.MULTILINE)
WORD = re.compile(r"<([a-z]+\d+):(\d+)>")
CLIENT_GONE = 499
RACED = frozenset({"chat.completions", "completions", "messages", "responses"})
CUT = frozenset({Outcome.LOST, Outcome.SUPERSEDED, Outcome.CLIENT_GONE})
BROKEN = frozenset({Outcome.FAILED, Outcome.TIMEOUT, Outcome.STALLED})
NOBODYS = frozenset({ErrorKind.BAD_REQUEST, ErrorKind.NO_SUCH_API})
BURST_TOKENS = 20.0
MS = 0.002  # rounding


def wrong(evidence: Evidence) -> list[str]:
    """Return all that is wrong with a run."""
    return [f"{check.__name__}: {problem}" for check in CHECKS for problem in check(evidence)]


def nothing_is_left(evidence: Evidence) -> Iterator[str]:
    yield from evidence.left
    for name, provider in evidence.providers.items():
        if provider.under_way:
            yield f"{name} is still asked: {sorted(provider.under_way)}"
    for upstream in evidence.upstreams:
        if not upstream.closed:
            yield f"an upstream of {upstream.provider.name} was not closed"
    for name, (taken, waiting) in evidence.seats.items():
        if taken or waiting:
            yield f"{name}: {taken} seats taken, {waiting} waiting"
    if any(evidence.calls):
        yield "{} calls have a seat, {} wait".format(*evidence.calls)
    for outage in evidence.store.outages.values():
        if outage.ended_at is None:
            yield f"an outage of {outage.deployment} has no end"
    if not evidence.store.closed:
        yield "the store was not closed"
    yield from evidence.busy


def nothing_crashed(evidence: Evidence) -> Iterator[str]:
    yield from evidence.crashes


def each_request_has_one_answer(evidence: Evidence) -> Iterator[str]:
    for client in evidence.clients:
        if client.extra:
            yield f"{client.seen[0].name}: bytes after the last answer: {client.extra[:80]!r}"
        for seen in client.seen:
            if seen.sent and not seen.is_whole and not seen.gave_up and not _may_be_cut(evidence, seen):
                yield f"{seen.name}: no whole answer, {seen.status} {seen.body[-200:]!r}"
            if seen.status is not None and seen.status >= 400 and b"error" not in seen.body and seen.is_whole:
                yield f"{seen.name}: {seen.status} without an error"


def answers_are_one_text(evidence: Evidence) -> Iterator[str]:
    """Where another may go on: a text that one of them began, nothing twice, nothing lost, and one end.

    All habits but the first two of HABITS do not continue it, and whoever does goes on with the same text. Empty lines
    before it may be of another.
    """
    if evidence.scenario.takeover is None:
        return
    calls = _call_of(evidence)
    for seen in _all_seen(evidence):
        if seen.ask.model != MODEL or not seen.body or not seen.ask.stream or seen.status != 200:
            continue
        sources = [each for each in _asked(evidence) if each.call == seen.name]
        text, ends, errors = read_stream(seen.body)
        text = text.lstrip("\n")
        if text and not any(each.text.startswith(text) for each in sources):
            yield f"{seen.name}: {text!r} is of nobody: {[each.text for each in sources]}"
        elif ends > 1 or errors > 1 or (ends and errors):
            yield f"{seen.name}: {ends} ends and {errors} errors"
        elif ends and text not in [each.text for each in sources]:
            yield f"{seen.name}: {text!r} has an end, and is not whole: {[each.text for each in sources]}"
        elif seen.is_whole and not (ends or errors):
            yield f"{seen.name}: neither an end nor an error after {text!r}"
        call = calls.get(seen.name)
        was_cut = call is not None and call.error_kind == "shutting_down"  # by the end of the grace
        if text and errors and call and not (was_cut or any(row.outcome in BROKEN for row in call.attempts)):
            yield f"{seen.name}: an error, and nobody broke"


def read_stream(body: bytes) -> tuple[str, int, int]:
    """Return the text of a stream in any dialect, how many ends it has, and how many errors."""
    text, ends, errors = "", 0, 0
    for event in events(body[: body.rfind(b"\n\n") + 2]):
        if not event.data.startswith(b"{"):
            continue
        said = msgspec.json.decode(event.data)
        text += text_in([said])
        errors += "error" in said and said["error"] is not None
        choices = said.get("choices")
        reasons = [choice.get("finish_reason") for choice in choices] if isinstance(choices, list) else []
        ends += sum(reason is not None for reason in reasons)
        ends += said.get("type") in {"message_stop", "response.completed", "response.incomplete"}
    return text, ends, errors


def a_slow_one_is_cut_only_for_one_that_goes_on(evidence: Evidence) -> Iterator[str]:
    """A superseded winner is followed by one with text of its own; and no more are rescued than the budget has."""
    slow = (evidence.scenario.takeover or {}).get("slow")
    for call in evidence.store.calls.values():
        if call.takeover == "rescued" and slow is None:
            yield f"call {call.id}: rescued, which is off"
        parts = {row.continues for row in call.attempts if row.token_ms is not None}
        for row in call.attempts:
            is_rescued = row.outcome is Outcome.SUPERSEDED and any(each.continues == row.id for each in call.attempts)
            if is_rescued and row.role is not Role.TAKEOVER and row.id not in parts:
                yield f"call {call.id}: {row.deployment} was cut, and nobody had text that goes on"
    if slow is not None:
        streams = sum(call.streamed for call in evidence.store.calls.values())
        asked = {row.continues for row in evidence.store.attempts.values() if row.continues is not None}
        broke = {row.id for row in evidence.store.attempts.values() if row.outcome in BROKEN}
        if len(asked - broke) > MOST_RESCUES + slow["budget"] * streams:
            yield f"{len(asked - broke)} rescues of {streams} streams"


def answers_are_the_winners_own(evidence: Evidence) -> Iterator[str]:
    """Only the winner's tokens, all of them and in order; in its own dialect byte for byte."""
    if evidence.scenario.takeover is not None:
        return
    asked = {each.tag: each for each in _asked(evidence)}
    calls = _call_of(evidence)
    for seen in _all_seen(evidence):
        body = seen.body.decode()
        words = WORD.findall(body if seen.ask.dialect != "responses" else _once(body))
        tags = {tag for tag, _ in words}
        if len(tags) > 1:
            yield f"{seen.name}: tokens of {sorted(tags)}"
            continue
        numbers = [int(number) for _, number in words]
        if numbers != list(range(len(numbers))):
            yield f"{seen.name}: tokens in the order {numbers}"
            continue
        call = calls.get(seen.name)
        winner = None if call is None else _winner(call)
        if tags and not seen.gave_up and (winner is None or winner.provider_request_id not in tags):
            yield f"{seen.name}: the ledger names {winner and winner.provider_request_id}, the answer is of {tags}"
        if not (seen.is_whole and seen.status == 200) or seen.ask.dialect == "embeddings":
            continue
        source = asked.get(next(iter(tags), "")) or asked.get((winner.provider_request_id or "") if winner else "")
        failed = b'"error"' in seen.body and (call is None or call.error_kind is not None)
        if source is None:
            if not failed:
                yield f"{seen.name}: an answer of nobody's: {seen.body[:200]!r}"
            continue
        if not failed and len(numbers) != source.behaviour.tokens:
            yield f"{seen.name}: {len(numbers)} of {source.behaviour.tokens} tokens, as if they were all"
        if seen.ask.dialect == "chat" and seen.ask.stream:
            yield from _byte_for_byte(seen, source, failed=failed)


def _byte_for_byte(seen: Seen, source: Asked, *, failed: bool) -> Iterator[str]:
    got = [event for event in complete(seen.body) if not event.startswith(b":")]
    sent = [event for event in source.events if seen.ask.wants_usage or b'"choices":[]' not in event]
    if failed:
        if not got or b'"error"' not in got[-1] or got[:-1] != sent[: len(got) - 1]:
            yield f"{seen.name}: not a beginning and an error: {got[-3:]}"
        return
    if source.finished and got[-1:] == [DONE] and got[:-1] == sent[: len(got) - 1]:
        rest = sent[len(got) - 1 :]  # usage that did not come in time after the finish reason
        if not rest or (not source.usage_read and all(b'"choices":[]' in event for event in rest)):
            return
    yield f"{seen.name}: {got} is not {[*sent, DONE]}"


def an_answer_that_is_finished_is_whole(evidence: Evidence) -> Iterator[str]:
    """After a finish reason nothing that happens to its connection makes an answer a failure."""
    asked = {each.tag: each for each in _asked(evidence)}
    for row in evidence.store.attempts.values():
        source = asked.get(row.provider_request_id or "")
        if source is None or not source.finished or row.token_ms is None or source.behaviour.lie is not None:
            continue
        if row.outcome in BROKEN and row.id == _winner_of(evidence, row):
            yield f"{source.tag} was finished, and is {row.outcome} ({row.error_kind})"


def the_ledger_has_each_call_once(evidence: Evidence) -> Iterator[str]:
    store, witness = evidence.store, evidence.witness
    if store.twice:
        yield f"rows came twice: {store.twice}"
    if store.begun:
        yield f"{store.begun} calls began and never ended"
    finished = Counter(record.id for record in witness.finished)
    if set(finished.values()) - {1}:
        yield f"calls that ended more than once: {[each for each, times in finished.items() if times > 1]}"
    if finished.keys() != store.calls.keys():
        yield f"{len(finished)} calls ended, {len(store.calls)} rows"
    if unended := witness.started.keys() - finished.keys():
        yield f"calls that never ended: {unended}"
    for each in store.calls.values():
        if each.ttft_ms is not None and each.total_ms + MS < each.ttft_ms:
            yield f"call {each.id}: ended after {each.total_ms} ms, its first token came after {each.ttft_ms}"
    names = Counter(record.request_id for record in store.calls.values())
    for seen in _all_seen(evidence):
        call_id = seen.headers.get("x-holeshot-call-id")
        if seen.is_whole and seen.status == 200 and not names[seen.name]:
            yield f"{seen.name}: answered, and there is no row"
        if names[seen.name] > 1:
            yield f"{seen.name}: {names[seen.name]} calls of one request"
        if call_id is not None and call_id not in store.calls:
            yield f"{seen.name}: no row of the call {call_id}"
        record = None if call_id is None else store.calls.get(call_id)
        is_cut = record is not None and record.error_kind == ShuttingDown.code  # its stream ends with an error event
        is_told = is_cut or _committed_early(seen)
        if record is not None and seen.is_whole and seen.status != record.status_code and not is_told:
            yield f"{seen.name}: answered {seen.status}, the row says {record.status_code}"
        if record is not None and record.request_id != seen.name:
            yield f"{seen.name}: its call is of {record.request_id}"


def each_attempt_has_one_outcome(evidence: Evidence) -> Iterator[str]:
    witness = evidence.witness
    launched = [start.id for _, start in witness.launched]
    ended = Counter(record.id for record in witness.ended)
    if sorted(launched) != sorted(ended):
        yield f"{len(launched)} launched, {len(ended)} ended"
    if any(times > 1 for times in ended.values()):
        yield f"ended more than once: {[each for each, times in ended.items() if times > 1]}"
    if sorted(launched) != sorted(evidence.store.attempts):
        missing = set(launched) - set(evidence.store.attempts)
        yield f"{len(launched)} launched, {len(evidence.store.attempts)} rows; without a row: {missing}"
    for call in evidence.store.calls.values():
        of_call = [each for each in evidence.store.attempts.values() if each.call_id == call.id]
        if call.launched != len(of_call):
            yield f"call {call.id}: launched {call.launched}, rows {len(of_call)}"
        extra = [each.number for each in of_call if each.is_extra]
        if call.extras != len(extra) or 1 in extra:
            yield f"call {call.id}: {call.extras} extra attempts, the rows say {extra}"
        if sorted(each.number for each in of_call) != list(range(1, len(of_call) + 1)):
            yield f"call {call.id}: attempts numbered {sorted(each.number for each in of_call)}"
        won = [each for each in of_call if each.outcome is Outcome.WON]
        if len(won) > 1 or (won and won[0].id != call.winner_attempt_id):
            yield f"call {call.id}: {len(won)} have won, the call says {call.winner_attempt_id}"


def nobody_is_interrupted_but_by_the_end(evidence: Evidence) -> Iterator[str]:
    for row in evidence.store.attempts.values():
        is_shortage = row.error_kind == ErrorKind.LOCAL_RESOURCES
        if row.outcome is Outcome.INTERRUPTED and evidence.scenario.shutdown_s is None and not is_shortage:
            yield f"{row.deployment} was interrupted, and the gateway did not stop"


def providers_were_asked_as_the_rows_say(evidence: Evidence) -> Iterator[str]:
    """Sent requests, first tokens, speeds and ages are what the providers saw."""
    asked_of: dict[tuple[str, str], list[Asked]] = defaultdict(list)
    for each in _asked(evidence):
        if each.call:  # vectors are compared for no client
            asked_of[each.call, each.provider].append(each)
    rows_of: dict[tuple[str, str], list[AttemptRecord]] = defaultdict(list)
    for row in evidence.store.attempts.values():
        call = evidence.store.calls.get(row.call_id)
        if call is not None:
            rows_of[call.request_id or "", row.provider].append(row)
    for key in asked_of.keys() | rows_of.keys():
        seen = asked_of[key]
        rows = [row for row in rows_of[key] if row.sends]
        if sum(row.sends or 0 for row in rows) != sum(each.times for each in seen):
            yield f"{key}: the rows say {[row.sends for row in rows]} times, it was {[each.times for each in seen]}"
            continue
        by_tag = {each.tag: each for each in seen}
        for row in rows:
            if row.provider_request_id in by_tag:
                yield from _measured(row, by_tag[row.provider_request_id])
            elif len(rows) == len(seen) == 1:
                yield from _measured(row, seen[0])


def _measured(row: AttemptRecord, asked: Asked) -> Iterator[str]:
    translated = row.api != {"chat": "chat.completions"}.get(asked.path, asked.path)
    thinks = asked.behaviour.thoughts or (asked.begun and asked.behaviour.habit == "reasoning")
    if row.api not in RACED or asked.behaviour.lie is not None or (translated and thinks):
        return
    ttft_ms = None if asked.token_at is None else (asked.token_at - asked.at) * 1000
    if not _same(row.ttft_ms, ttft_ms):
        yield f"{asked.tag}: ttft_ms {row.ttft_ms}, it was {ttft_ms}"
    answer_ms = None if asked.answer_at is None else (asked.answer_at - asked.at) * 1000
    is_cut_early = row.win_on is WinOn.SENTENCE and row.outcome in {Outcome.LOST, Outcome.CLIENT_GONE}
    if not _same(row.ttft_answer_ms, answer_ms) and not (is_cut_early and row.ttft_answer_ms is None):
        yield f"{asked.tag}: ttft_answer_ms {row.ttft_answer_ms}, it was {answer_ms}"
    if row.outcome in {Outcome.LOST, Outcome.CLIENT_GONE} and row.token_ms is None and row.censored_at_ms is None:
        yield f"{asked.tag}: cut without a first token, and no age is known"
    if row.censored_at_ms is not None:
        over_at = asked.over_at if asked.over_at is not None else asked.at
        age_ms = (over_at - asked.at) * 1000
        runs_on = row.is_kept and row.win_on is WinOn.SENTENCE and row.censored_at_ms <= age_ms  # behind the winner
        if not runs_on and not _same(row.censored_at_ms, age_ms) and asked.how in {"aborted", "cancelled"}:
            yield f"{asked.tag}: censored_at_ms {row.censored_at_ms}, it was cut at {age_ms}"
    cut = asked.how in {"aborted", "cancelled"}  # a translation may still hold the usage back
    if (
        row.decode_tps is not None
        and not (translated and cut)
        and asked.usage_read
        and asked.last_at is not None
        and asked.token_at is not None
    ):
        tps = (asked.tokens - asked.firsts) / (asked.last_at - asked.token_at)
        if abs(row.decode_tps - tps) > 0.01 * tps:
            yield f"{asked.tag}: decode_tps {row.decode_tps}, it was {tps}"


def nothing_was_launched_beyond_its_limits(evidence: Evidence) -> Iterator[str]:
    most = [max(limits.get(name, 10**6) for limits in evidence.limits) for name in _limited(evidence)]
    for name, limit in zip(_limited(evidence), most, strict=True):
        peak = _peak(evidence, name)
        if peak > limit:
            yield f"{name}: {peak} under way at once, max_in_flight is {limit}"
    extra = Counter(start.model for _, start in evidence.witness.launched if start.role in EXTRA_ROLES)
    granted = Counter(model for model, _, yes in evidence.steering.permits if yes)
    for model, number in extra.items():
        if number > granted[model or ""]:
            yield f"{model}: {number} extra attempts, {granted[model or '']} permitted"
    for call_id, task in evidence.witness.begun_by.items():
        plans = evidence.steering.plans.get(task, [])
        if not (record := evidence.store.calls.get(call_id)) or not plans:
            continue
        planned = Counter((model, launch.role) for model, plan in plans for launch in plan.launches)
        raced = Counter(
            (each.model, each.role)
            for each in record.attempts
            # One that is not valid may be followed by another that was not planned, if permitted.
            if each.role in EXTRA_ROLES and each.win_on is not WinOn.VALID
        )
        for (model, role), number in raced.items():
            if number > planned[model or "", role]:
                yield f"call {call_id}: {number} attempts as {role}, planned {planned[model or '', role]}"
        names = {name for _, plan in plans for name in [*(each.deployment for each in plan.launches), *plan.rest]}
        if stray := {each.deployment for each in record.attempts} - names:
            yield f"call {call_id}: {stray} are not in its plan"


def no_more_calls_are_taken_on_than_may_be(evidence: Evidence) -> Iterator[str]:
    most = evidence.scenario.most_calls
    if most is not None and evidence.witness.most_calls > most:
        yield f"{evidence.witness.most_calls} calls at once, max_in_flight is {most}"
    calls = _call_of(evidence)
    for seen in _all_seen(evidence):
        # In Messages a call whose providers have all failed may have the same word, but also a row.
        is_stopped = b"the gateway stopped" in seen.body  # while it waited for what limits hold for others
        if most is None and b'"overloaded' in seen.body and seen.name not in calls and not is_stopped:
            yield f"{seen.name}: refused, and there was room"


def limits_are_kept(evidence: Evidence) -> Iterator[str]:
    """No more of a client's calls run at once, or begin in a minute, than may; and nothing is held at the end."""
    counted = evidence.gateway.context.limits
    if counted._holds:
        yield f"{len(counted._holds)} calls that have ended hold something"
    for account in (*counted._accounts.values(), *counted._models.values()):
        for quota in account.quotas(counted._unix_clock()):
            if quota.held > ROUNDING:
                yield f"{quota.held} of {quota.key} are held"
    limits, calls = evidence.scenario.limits, evidence.store.calls.values()
    changes: list[tuple[float, int]] = []
    minutes: Counter[float] = Counter()
    for call in calls:
        began_ms = call.started_at.timestamp() * 1000
        changes += [(began_ms, 1), (began_ms + call.total_ms - 1, -1)]
        minutes[began_ms // 60_000] += 1
    running = peak = 0
    for _, change in sorted(changes):
        running += change
        peak = max(peak, running)
    if peak > limits.get("max_parallel", peak):
        yield f"{peak} calls at once, max_parallel is {limits['max_parallel']:g}"
    if max(minutes.values(), default=0) > limits.get("rpm", len(calls)):
        yield f"{max(minutes.values())} calls in a minute, rpm is {limits['rpm']:g}"


def the_budget_is_as_recounted(evidence: Evidence) -> Iterator[str]:
    left: dict[str, float] = {}
    for model, ratio, role, granted in evidence.steering.budget:
        tokens = left.get(model, BURST_TOKENS)
        if role is None:
            left[model] = min(BURST_TOKENS, tokens + ratio)
            continue
        is_extra = role in EXTRA_ROLES and role is not Role.PROBE
        if granted and is_extra:
            floor = 1.0 - BURST_TOKENS if role is Role.EXPLORE else 1.0
            if tokens < floor or ratio <= 0:
                yield f"{model}: an extra attempt with {tokens} left at {ratio}"
            left[model] = tokens - 1.0
        elif granted and role is Role.FALLBACK:
            left[model] = max(-BURST_TOKENS, tokens - 1.0)
    for model, tokens in left.items():
        if abs(evidence.budget_left.get(model, tokens) - tokens) > 1e-6:
            yield f"{model}: {evidence.budget_left[model]} left, recounted {tokens}"


def the_board_is_as_recounted(evidence: Evidence) -> Iterator[str]:
    rows = [row for row in evidence.store.attempts.values() if row.api in RACED]
    for model, deployments in evidence.board.items():
        for name, counts in deployments.items():
            own = [row for row in rows if row.model == model and row.deployment == name]
            ended = [row for row in own if row.outcome in BROKEN and row.error_kind not in NOBODYS]
            limited = [row for row in ended if row.error_kind == ErrorKind.RATE_LIMITED]
            cut = [row for row in own if row.outcome in CUT and row.censored_at_ms is not None]
            answered = [row for row in own if row.outcome in CUT | {Outcome.WON} and row.censored_at_ms is None]
            recounted = {
                "n": len(ended) - len(limited) + len(answered),
                "n_first_token": sum(row.token_ms is not None for row in own),
                "n_censored": len(cut),
                "n_rate_limited": len(limited),
            }
            if counts != recounted:
                yield f"{model} {name}: {counts}, recounted {recounted}"


def the_last_token_wins_nothing_it_should_not(evidence: Evidence) -> Iterator[str]:
    """Nobody is asked after the answer began, but those who may go on with it; losers are cut in that instant."""
    for call in evidence.store.calls.values():
        winner = _winner(call)
        if winner is None or call.ttft_ms is None or winner.outcome is not Outcome.WON or not call.streamed:
            continue
        for attempt in call.attempts:
            if attempt.role is not Role.TAKEOVER and attempt.launch_offset_ms > call.ttft_ms + MS:
                late = f"{attempt.deployment} was asked at {attempt.launch_offset_ms} ms"
                yield f"call {call.id}: {late}, and it was won at {call.ttft_ms} ms"


def the_first_token_wins_where_no_hold_is_asked_for(evidence: Evidence) -> Iterator[str]:
    """By default nobody with an earlier token loses a streamed call, whatever its mode and objective are."""
    race = evidence.scenario.race
    written = race.get("hold", race.get("objective") in {"reading", "completion"})
    for call in evidence.store.calls.values():
        winner, parts = _who_began(call)
        if not call.streamed or winner is None or winner.token_ms is None or winner.model != MODEL or written:
            continue
        first_ms = winner.launch_offset_ms + winner.token_ms
        for attempt in call.attempts:
            if attempt.outcome is not Outcome.SUPERSEDED or attempt.token_ms is None or attempt.audited:
                continue
            if attempt.role is Role.TAKEOVER or attempt.id in parts or winner.is_kept:
                continue
            if attempt.model == MODEL and attempt.launch_offset_ms + attempt.token_ms < first_ms - MS:
                yield f"call {call.id}: {attempt.deployment} had a token before {winner.deployment}, which has won"
        was_sent = (winner.outcome is Outcome.WON and not winner.is_kept) or winner.id in parts
        if call.ttft_ms is not None and was_sent and call.ttft_ms > first_ms + MS:
            yield f"call {call.id}: {winner.deployment} had a token at {first_ms} ms, its client at {call.ttft_ms} ms"


def nothing_is_told_before_the_first_bytes(evidence: Evidence) -> Iterator[str]:
    """From the read that lets a streamed call be answered to its first write: one step, and no recorder is told."""
    if evidence.scenario.takeover is not None:  # prose: a tag may come in pieces, and another may write its rest
        return
    calls, asked = _call_of(evidence), {each.tag: each.call for each in _asked(evidence)}
    reads: dict[str, tuple[int, int]] = {}  # the step and the place of each answer's last read
    begun: set[str] = set()
    for place, (step, kind, what) in enumerate(evidence.moments):
        if kind == "read":
            reads[what] = step, place
        if kind != "write" or (name := asked[what]) in begun:
            continue
        begun.add(name)
        call = calls.get(name)
        if call is None or not call.streamed or call.endpoint not in RACED:
            continue
        read_in, read_at = reads[what]
        told = [method for _, each, method in evidence.moments[read_at:place] if each == "told"]
        winner = _winner(call)
        waited = winner is not None and winner.flaw is not None  # until no other was left
        if read_in != step and not waited and not _may_be_held(evidence, call):
            yield f"{name}: written in step {step}, read in step {read_in}"
        # An answer that has come whole is recorded before its client sees the end, which goes out with the rest.
        if read_in == step and told and "call_finished" not in told:
            yield f"{name}: {told} between the read and the first write"


def _may_be_held(evidence: Evidence, call: CallRecord) -> bool:
    plans = evidence.steering.plans.get(evidence.witness.begun_by[call.id], [])
    return any(plan.decode_s for _, plan in plans)


def nobody_is_held_for_longer_than_it_can_gain(evidence: Evidence) -> Iterator[str]:
    for call_id, task in evidence.witness.begun_by.items():
        call = evidence.store.calls.get(call_id)
        winner = None if call is None else _winner(call)
        if call is None or winner is None or call.ttft_ms is None or winner.token_ms is None:
            continue
        if winner.is_kept:  # it was not held, but behind a winner that broke
            continue
        held_ms = call.ttft_ms - winner.launch_offset_ms - winner.token_ms
        if held_ms > MS and (call.held_ms is None or abs(call.held_ms - held_ms) > MS):
            yield f"call {call_id}: {winner.deployment} was held for {held_ms} ms, its row says {call.held_ms}"
        gains_s = [0.0]
        for model, plan in evidence.steering.plans.get(task, ()):
            known = plan.decode_s
            if model == winner.model and winner.deployment in known:
                gains_s.append(known[winner.deployment] - min(known.values()))
        if held_ms > 1000 * min(HOLD_MAX_S, max(gains_s)) + MS:
            yield f"call {call_id}: {winner.deployment} was held for {held_ms} ms, to gain {max(gains_s)} s"


def an_answer_counts_for_the_model_that_gave_it(evidence: Evidence) -> Iterator[str]:
    for call in evidence.store.calls.values():
        began, _ = _who_began(call)
        if began is not None and began.model is not None and began.model != (call.answered_model or call.model):
            yield f"call {call.id}: {began.deployment} of {began.model} answered, its row says {call.answered_model}"


def refusals_are_in_sql_as_counted(evidence: Evidence) -> Iterator[str]:
    counted = sum(float(number) for number in REFUSED.findall(evidence.metrics))
    stored = sum(evidence.store.refusals.values())
    if counted != stored:
        yield f"{counted} refusals are counted, {stored} are stored"
    if evidence.gateway.context.wrong_keys.waiting:
        yield "an answer to a wrong key still waits"


def who_is_valid_wins(evidence: Evidence) -> Iterator[str]:
    """Where JSON is asked for, bad JSON answers nobody who wants none, and no other while there is good JSON."""
    asked = {each.tag: each for each in _asked(evidence)}
    calls = _call_of(evidence)
    for seen in _all_seen(evidence):
        call = calls.get(seen.name)
        if call is None or call.win_on is not WinOn.VALID or not seen.ask.json:
            continue
        winner = _winner(call)
        source = None if winner is None else asked.get(winner.provider_request_id or "")
        if winner is None or source is None or (winner.flaw is None and source.behaviour.json == "good"):
            continue
        if evidence.scenario.race.get("invalid") != "best":
            yield f"{seen.name}: answered by {source.tag}, which is {source.behaviour.json} ({winner.flaw})"
        # One whose text was good may still break, as another event of it cannot be read.
        valid = [each for each in call.attempts if each.valid_ms is not None and each.outcome not in BROKEN]
        if good := [each.deployment for each in valid]:
            yield f"{seen.name}: answered by {source.tag} ({winner.flaw}), and {good} were valid"


def a_rival_answers_when_its_winner_breaks(evidence: Evidence) -> Iterator[str]:
    """Where one is to be kept there is one, of whole answers and for listeners; it answers only if another could not.

    For listeners it is one that says the same, or has not begun to.
    """
    asked = {each.tag: each for each in _asked(evidence)}
    for call in evidence.store.calls.values():
        rows = [row for row in evidence.store.attempts.values() if row.call_id == call.id and row.api in RACED]
        of_model = [row for row in rows if row.model == MODEL]
        kept = [row for row in rows if row.is_kept]
        race = evidence.scenario.race
        keeps = bool(race.get("keep_rival")) and not call.streamed
        speaks = race.get("profile") == "voice" and race.get("keep_rival", True) and call.streamed
        if [row for row in kept if row not in of_model] or len(kept) > (keeps or speaks):
            yield f"call {call.id}: kept {[row.deployment for row in kept]}"
        behind = [row for row in of_model if row.is_overtaken and row.finish_reason is None]
        # A fallback beside it that has a first token may have overtaken it: then none of its own attempts has won.
        is_alone = all(row.model == MODEL or row.token_ms is None for row in rows)
        if keeps and behind and not kept and is_alone:
            yield f"call {call.id}: {[row.deployment for row in behind]} lost, and none of them was kept"
        for row in kept:
            source = asked.get(row.provider_request_id or "")
            others = [each for each in of_model if each is not row and each.token_ms is not None]
            broken = [each for each in others if each.outcome in BROKEN or (speaks and call.takeover == "rescued")]
            if row.outcome is Outcome.WON and not broken:
                yield f"call {call.id}: {row.deployment} was kept and has won, and nobody broke"
            if keeps and row.outcome in CUT - {Outcome.CLIENT_GONE} and call.winner_attempt_id is None:
                was = "whole" if source is not None and source.finished else "running"
                yield f"call {call.id}: {row.deployment} was kept, {was} and cut, and nobody has answered"


CHECKS: tuple[Callable[[Evidence], Iterator[str]], ...] = (
    nothing_is_left,
    nothing_crashed,
    each_request_has_one_answer,
    answers_are_the_winners_own,
    answers_are_one_text,
    a_slow_one_is_cut_only_for_one_that_goes_on,
    an_answer_that_is_finished_is_whole,
    the_ledger_has_each_call_once,
    each_attempt_has_one_outcome,
    nobody_is_interrupted_but_by_the_end,
    providers_were_asked_as_the_rows_say,
    nothing_was_launched_beyond_its_limits,
    no_more_calls_are_taken_on_than_may_be,
    limits_are_kept,
    the_budget_is_as_recounted,
    the_board_is_as_recounted,
    the_last_token_wins_nothing_it_should_not,
    the_first_token_wins_where_no_hold_is_asked_for,
    nothing_is_told_before_the_first_bytes,
    nobody_is_held_for_longer_than_it_can_gain,
    who_is_valid_wins,
    a_rival_answers_when_its_winner_breaks,
    refusals_are_in_sql_as_counted,
    an_answer_counts_for_the_model_that_gave_it,
)


def _all_seen(evidence: Evidence) -> Iterator[Seen]:
    for client in evidence.clients:
        yield from client.seen


def _asked(evidence: Evidence) -> Iterator[Asked]:
    for provider in evidence.providers.values():
        yield from provider.asked


def _call_of(evidence: Evidence) -> dict[str, CallRecord]:
    return {call.request_id or "": call for call in evidence.store.calls.values()}


def _winner(call: CallRecord) -> AttemptRecord | None:
    return next((each for each in call.attempts if each.id == call.winner_attempt_id), None)


def _who_began(call: CallRecord) -> tuple[AttemptRecord | None, set[str]]:
    """Return whose answer the call's is, and those with which another went on: the winner ends it, and may go on."""
    rows = {each.id: each for each in call.attempts}
    row, parts = _winner(call), set[str]()
    while row is not None and row.continues is not None:
        parts.add(row.continues)
        row = rows[row.continues]
    return row, parts


def _winner_of(evidence: Evidence, row: AttemptRecord) -> str | None:
    call = evidence.store.calls.get(row.call_id)
    return None if call is None else call.winner_attempt_id


def _may_be_cut(evidence: Evidence, seen: Seen) -> bool:
    """Tell whether an answer may have been broken off: the gateway was stopped, or sound broke after it began."""
    if evidence.scenario.shutdown_s is not None:
        return True
    call = _call_of(evidence).get(seen.name)
    return seen.ask.dialect == "speech" and call is not None and call.error_kind is not None


def _committed_early(seen: Seen) -> bool:
    """Tell whether comments have sent the status before there was an answer."""
    return seen.body.startswith((b":", b"event: ping"))


def _once(body: str) -> str:
    """Return a Responses answer without its repetitions: deltas alone where it streams, else the output."""
    if "event:" not in body:
        return body
    return "".join(line for line in body.splitlines() if '"type":"response.output_text.delta"' in line)


def _limited(evidence: Evidence) -> list[str]:
    """Return the deployments that had a limit in every configuration in which they were."""
    return sorted(evidence.limits[0])


def _peak(evidence: Evidence, deployment: str) -> int:
    provider, _, _ = deployment.partition("/")
    changes: list[tuple[float, int, int]] = []
    rows = {row.id: row for row in evidence.store.attempts.values()}
    for at, start in evidence.witness.launched:
        if start.deployment != deployment or start.id not in rows:
            continue
        call = evidence.store.calls.get(rows[start.id].call_id)
        name = None if call is None else call.request_id
        own = [each for each in evidence.providers[provider].asked if each.at == at and each.call == name]
        end = max((each.over_at or NEVER_S for each in own), default=at)
        changes += [(at, 1, 1), (end, 0, -1)]
    running = peak = 0
    for _, _, change in sorted(changes):
        running += change
        peak = max(peak, running)
    return peak


def _same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= MS
