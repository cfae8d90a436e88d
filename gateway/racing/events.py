"""The usual reading: an answer of events, in the client's dialect, begins with its first meaningful delta."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import cast

from gateway.core.attempts import AnswerKind, AttemptRecord, Outcome, Role, WinOn
from gateway.core.tasks import retrieve
from gateway.racing.answer import AnswerStream, request_of, translated
from gateway.racing.attempt import Answer, Attempt, AttemptState
from gateway.racing.ladder import BY_UPSTREAM, DEPLOYMENT, RefusedStep, climbed
from gateway.racing.measurement import FOR_S, NONE, UNKNOWN, Measurement
from gateway.racing.other_forms import RetryForm, accepted, asked_whole, facts_of
from gateway.racing.plausibility import most_tokens
from gateway.racing.records import Ending, attempt_record
from gateway.racing.timeouts import AttemptClocks, in_background
from gateway.racing.validation import Judgement, answers_made, may_call_tools
from providers import Exchange, Form, Request, TranslatedExchange, UpstreamError, aside
from providers.dialects import SEARCHED_BYTES, UnshownThought, bound_reasoning


class Events:
    """Reads answers as events."""

    form: Form | None = None
    is_compared = False
    has_tokens = True
    priced_as = None

    def begin(self, attempt: Attempt, at: float) -> tuple[bool, Measurement]:
        """Return whether a whole answer must be asked for, and the measurement of an attempt launched ``at``."""
        entry, deployment, refused = attempt.entry, attempt.deployment, attempt.refused
        call, learnt = entry.call, deployment.learnt
        may_be = deployment.whole or (
            learnt is not None and learnt.stops_streams and learnt.stops_streams_for(call.caller.client)
        )
        again = attempt.start.role is Role.WHOLE or (refused is not None and refused.whole)
        whole = again or call.request.runs_on or bool(may_be and asked_whole(call, deployment))
        # Text that is added to the client's prompt has an unknown length.
        prompt_bytes = None if attempt.start.continues or deployment.extra_body else call.traits.inline_bytes
        fields, dialect = call.request.fields, call.request.dialect
        many = dialect.requests.batched or "best_of" in fields or dialect.requests.choices in fields
        answers = answers_made(fields, dialect) if many else 1
        return whole, Measurement(at, most_tokens(deployment.capabilities, answers), prompt_bytes)

    def clocks(self, attempt: Attempt) -> AttemptClocks:
        """Start the clocks of an attempt whose task runs."""
        assert attempt.task is not None
        entry, limits, services = attempt.entry, attempt.deployment.clocks, attempt.entry.open_call.services
        pauses = services.pauses[attempt.deployment.name]
        if pauses.pool is None:
            services.pauses.pool(pauses, attempt.start.model or entry.call.decision.model)
        return AttemptClocks(
            in_background(limits) if entry.call.request.runs_on else limits,
            attempt.task,
            services.clock,
            entry.loop,
            pauses,
            attempt=attempt,
            started=None if attempt.refused is None else attempt.waiting_since,
            may_call=entry.call.decision.answer_kind is not AnswerKind.PLAIN and may_call_tools(entry.call),
        )

    async def open(self, attempt: Attempt, clocks: AttemptClocks) -> tuple[Exchange, Answer]:
        """Send the request; return the exchange, and what reads its answer."""
        entry, measurement, deployment = attempt.entry, attempt.measurement, attempt.deployment
        services, call = entry.open_call.services, entry.call
        entry.loop.call_soon(_expect, attempt, clocks)  # while the provider works
        taught = () if attempt.refused is None else facts_of(attempt)
        request = request_of(deployment, call, attempt.start.id, attempt.sendings, whole=attempt.whole, taught=taught)
        searching = bound = None
        dialect = request.dialect
        if dialect.answers.binds and len(prompt := request.fields.get(dialect.requests.prompt, b"")) > SEARCHED_BYTES:
            searching = aside(bound_reasoning, bytes(prompt))  # while the provider works
            searching.add_done_callback(retrieve)
        raw = await deployment.upstream.stream(request)
        if searching is not None:
            attempt.exchange = raw  # closed with the attempt, if the attempt ends meanwhile
            bound = await searching
        exchange = attempt.exchange = translated(
            raw,
            request,
            deployment,
            call,
            clocks,
            makers=services.makers,
            bound=bound,
            told=partial(_note_unshown, attempt),
        )
        measurement.headers_at, measurement.connect_ms = services.clock(), exchange.connect_ms
        # If the refusal had an error's status, this 200 shows that the form is taken. If the refusal came within an
        # answer, that answer began with 200, too, and this 200 shows nothing.
        if attempt.refused is not None and attempt.refused.exchange is None:
            services.forms.answered(attempt, call)
        if (learnt := deployment.learnt) is not None and (learnt.steers or learnt.stops_streams):
            accepted(attempt, call, learnt)
        if attempt.sendings.left_out:
            entry.sent_without(attempt, attempt.sendings.left_out)
        answer = cast("AnswerStream | None", attempt.answer) or _expect(attempt, clocks)
        answer.reader.mask(exchange.secrets)
        answer.translated = exchange if isinstance(exchange, TranslatedExchange) else None
        return exchange, answer

    async def instead(self, attempt: Attempt, error: UpstreamError) -> tuple[RetryForm | None, UpstreamError]:
        """Go up the ladder; after a part of the answer, or for a watched attempt, only on the upstream's rungs."""
        has_begun = attempt.state is not AttemptState.ASKED or attempt.measurement.meaningful
        call, services = attempt.entry.call, attempt.entry.open_call.services

        def request() -> Request:
            taught = facts_of(attempt)
            return request_of(
                attempt.deployment, call, attempt.start.id, attempt.sendings, whole=attempt.whole, taught=taught
            )

        if error.findings.is_bound and error.edited_from is None:
            prompt = bytes(request().fields.get(attempt.deployment.spoken_in(call).requests.prompt, b""))
            is_long = len(prompt) > SEARCHED_BYTES
            sent = await aside(bound_reasoning, prompt) if is_long else bound_reasoning(prompt)
            services.makers.note_refused(sent, attempt.deployment.provider)
        return await climbed(
            RefusedStep(attempt, call, error, request, services.forms.reword), BY_UPSTREAM if has_begun else DEPLOYMENT
        )

    def record(self, attempt: Attempt, ending: Ending, judgement: Judgement) -> AttemptRecord:
        """Return the record of an attempt that has ended, without its cost."""
        entry, measurement, deployment = attempt.entry, attempt.measurement, attempt.deployment.name
        exchange, outcome = attempt.exchange, ending.outcome
        if exchange is not None and (usage := exchange.usage_so_far) is not None:
            measurement.reported.usage = usage  # as the provider reports it: translations lack places for some counts
        paces, streamed = entry.open_call.services.paces, entry.call.request.stream
        dribble = UNKNOWN
        if ending.had_won and streamed:
            first_at, last_at = measurement.first_at, measurement.last_at
            is_long = first_at is not None and last_at is not None and last_at - first_at >= FOR_S
            dribble = paces.dribble(deployment, measurement) if is_long else NONE
        cut = (outcome is Outcome.LOST or outcome is Outcome.CLIENT_GONE) and attempt.token_at() is None
        speaks = not streamed or entry.call.decision.win_on is WinOn.SENTENCE
        was_kept, censored_at = entry.was_kept(attempt) if speaks else None, ending.at if cut else None
        if cut and was_kept and streamed and attempt.overtaken is not None:
            # A kept rival is cut by its own words, if these differ from the winner's: shortly before its first clause.
            # Censored at that age, rivals would make the estimates too long; so the age at the other's win counts.
            censored_at = attempt.overtaken.at
        record = attempt_record(
            entry.call,
            attempt.start,
            ending,
            measurement,
            exchange=exchange,
            censored_at=censored_at,
            overtaken=attempt.overtaken,
            kept=was_kept,
            judgement=judgement,
            dribble=dribble,
            whole=attempt.whole,
        )
        if outcome is Outcome.WON and record.decode_tps is not None:
            paces.add(deployment, record.decode_tps)
        return record


def _note_unshown(attempt: Attempt, unshown: Sequence[UnshownThought]) -> None:
    """Note the thoughts in the request of ``attempt`` that the vendor says it did not show to the model."""
    reported, checks = attempt.measurement.reported, dict(Counter(each.check for each in unshown)) or None
    if checks == reported.thoughts_dropped:  # some vendors repeat the note in each event that has the whole answer
        return
    reported.thoughts_dropped = checks
    attempt.entry.sent_without(attempt, [each.path for each in unshown])


EVENTS = Events()


def _expect(attempt: Attempt, clocks: AttemptClocks) -> AnswerStream:
    """Return the stream that reads the answer; create it on first use."""
    answer = attempt.answer
    if answer is None:
        services = attempt.entry.open_call.services
        # A continuation may end a thought that the continued text began.
        habit = None if attempt.start.continues else services.thoughts[attempt.deployment.name]
        answer = attempt.answer = AnswerStream(attempt.entry.call, attempt.measurement, clocks, services.clock, habit)
    return cast("AnswerStream", answer)
