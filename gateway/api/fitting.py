"""Finds the deployments of a model that can answer a request, and says why the others cannot."""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

from gateway.api.preferences import policy_violation
from gateway.api.request import Needs, ParsedRequest
from gateway.api.translations import ABILITIES, Fitting, Question, Translations, Unfit, is_sealed
from gateway.core.calls import AS_ASKED
from gateway.core.errors import NoDeploymentFits
from gateway.fleet import Deployment, Model
from gateway.settings import DataPolicy
from providers import ANSWER, Kind, StatedLengths, amount, has_must, is_demanded, size_of
from providers.dialects import PIVOT, Dialect, Fields, Malformed, stands

# The estimate of tokens may be too high by this factor: so a prompt that seems too long for all is still tried.
_ESTIMATE_SLACK = 4 / 3
_ALLOWED = b'"allowed_tools"'  # a choice among the tools of a chat request


def is_odd(dialect: Dialect, fields: Fields, needs: Needs) -> bool:
    """Whether a request may have a sealed part, or a tool, a call or a choice among tools that some servers lack.

    A prompt of texts alone has no sealed part and no call; its tools are known by themselves.
    """
    if needs.tools and _ALLOWED in bytes(fields.get(dialect.requests.tools.choice, b"")):
        return True
    has_texts = dialect.requests.tools.has_texts
    offers_or_calls = has_texts is not None and (needs.tools or not needs.inline) and has_texts(fields)
    return offers_or_calls or (not needs.inline and is_sealed(dialect, fields))


def is_foreign(names: frozenset[str], dialect: Dialect, fields: Fields) -> bool:
    """Whether a chat conversation, or its tools, may have fields of these ``names``, which a vendor refuses."""
    return dialect is PIVOT and stands(names, fields)


def fits_all(parsed: ParsedRequest, model: Model) -> bool:
    """Whether all deployments of a ``model``, which speak its dialect, take a request unchanged."""
    dialect, fields, needs, common = parsed.dialect, parsed.fields, parsed.needs, model.common
    return (
        ((needs.inline and not needs.tools) or not is_odd(dialect, fields, needs))  # most need no call to know
        and not (common.dropped and common.drops_from(dialect, fields))
        and not (common.refused_fields and is_foreign(common.refused_fields, dialect, fields))
        and needs.prompt_tokens <= common.context_tokens
        and (needs.max_tokens or 0) <= common.max_output_tokens
        and (common.thinks or dialect.requests.thinking.fields.isdisjoint(fields))
    )


class _TooLong(Unfit):
    """Only the length of the prompt is the reason."""


class _RefusedLength(Unfit):
    """A prompt of this length was refused here; the limit itself is unknown."""


class _TooShort(Unfit):
    """Only the length of the answer is the reason: the client allows a longer one."""


def fitted(question: Question, deployments: Iterable[Deployment]) -> Fitting:
    """Return those of ``deployments`` that can answer, with the request for each.

    Raises:
        NoDeploymentFits: no deployment can; the error lists the reasons.
        InvalidRequest: no deployment can, as the request is malformed.
        TooManyValues: no deployment can, as the request has too many values to be translated.

    """
    translations = Translations(question)
    fitting = Fitting([], {}, {}, {}, [])
    needs, excluded = question.needs, fitting.excluded
    unfit: dict[type[Unfit], list[Deployment]] = {}
    for deployment in deployments:
        try:
            _check_policy(deployment, question.policy)
            asked = translations.seen_by(deployment) if needs.vision else translations
            _check_abilities(deployment, asked.demanded, fitting, has_fallbacks=question.has_fallbacks)
            asked.fit(deployment, fitting)
            _check_length(deployment, question, is_ceiling=translations.lowers)
        except Unfit as reason:
            unfit.setdefault(type(reason), []).append(deployment)
            excluded[deployment.name] = str(reason)
        else:
            _add(deployment, question, fitting)
    too_long, too_short = unfit.get(_TooLong, []), unfit.get(_TooShort, []) if question.shortens else []
    if not fitting.deployments:  # a shorter answer is better than none; a refusal has its own words
        fitting.rooms.update((each.name, each.capabilities.max_output_tokens or 0) for each in too_short)
        after_all = too_short or (*_nearly_long_enough(too_long, needs), *unfit.get(_RefusedLength, ()))
        for deployment in after_all:
            _add(deployment, question, fitting)
            del excluded[deployment.name]
    if not fitting.deployments:
        if (fault := translations.fault) is not None and translations.faulty_for == len(excluded):
            raise fault
        raise NoDeploymentFits(question.model, excluded, too_long=_lengths(too_long, needs) if too_long else None)
    return fitting


def _add(deployment: Deployment, question: Question, fitting: Fitting) -> None:
    fitting.deployments.append(deployment)
    if (learnt := deployment.learnt) is not None and learnt.steers:
        _note_refused(deployment, question, fitting)


def fit_to_count(question: Question, fitting: Fitting) -> None:
    """Add to ``fitting`` the prompt as a call would send it to each of the deployments, which are to count its tokens.

    A count is never translated. A deployment that could not answer the call may still count: each is asked.
    """
    translations = Translations(question)
    for deployment in fitting.deployments:
        with suppress(Unfit, Malformed):  # the provider counts as asked, or says why not
            translations.fit_to_count(deployment, fitting)


def _check_policy(deployment: Deployment, policy: DataPolicy) -> None:
    if (reason := policy_violation(deployment, policy)) is not None:
        raise Unfit(reason)


def _check_abilities(
    deployment: Deployment, demanded: Collection[str], fitting: Fitting, *, has_fallbacks: bool
) -> None:
    for ability in demanded:
        if getattr(deployment.capabilities, ability) is False:
            raise Unfit(ABILITIES[ability])
    if deployment.lacks_schemas and "json_schema" in demanded:
        if has_fallbacks:  # else the client is told of it in the vendor's words
            raise Unfit(ABILITIES["json_schema"])
        fitting.second[deployment.name] = "refuses JSON schemas"


def _check_length(deployment: Deployment, question: Question, *, is_ceiling: bool) -> None:
    capabilities, needs = deployment.capabilities, question.needs
    context = capabilities.context_tokens
    if context is not None and needs.prompt_tokens > context:
        raise _TooLong(f"holds {context} tokens, the prompt has about {needs.prompt_tokens}")
    learnt = deployment.learnt
    is_taught = learnt is not None and learnt.steers
    refused = learnt.refused_length(deployment.model, question.client) if learnt is not None and is_taught else None
    if refused is not None and needs.prompt_tokens >= refused:
        raise _RefusedLength(
            f"has refused a prompt of about {refused} tokens, this one has about {needs.prompt_tokens}"
        )
    most = capabilities.max_output_tokens
    if not is_ceiling and most is not None and needs.max_tokens is not None and needs.max_tokens > most:
        raise _TooShort(f"answers with at most {most} tokens, not {needs.max_tokens}")


def _note_refused(deployment: Deployment, question: Question, fitting: Fitting) -> None:
    """Note parts of a request that ``deployment`` is known to refuse, so that others are asked first."""
    name, learnt = deployment.name, deployment.learnt
    fields, spoken = fitting.sent_to(name, question.fields), fitting.rendered.get(name, AS_ASKED).spoken
    dialect = spoken or deployment.spoken_to(question.dialect)
    limit = question.needs.max_tokens
    if learnt is not None and limit is not None:
        room = learnt.room(deployment.model, size_of(fields), question.client)
        if room is not None and room < limit:
            fitting.rooms[name] = room
            if question.dialect.requests.with_limit is None:  # otherwise clients have to set one
                fitting.second[name] = f"has room for about {room} tokens beside the prompt, not for {limit}"
    for fact in () if learnt is None else learnt.of(deployment.model, question.client):
        if fact.kind is Kind.MUST and fact.dialect == dialect.name and has_must(fact, fields, dialect.requests):
            fitting.second[name] = f"has refused {fact.words}"
        elif fact.kind is Kind.SIZE and amount(fact.field, fields, dialect.requests) > fact.tokens:
            fitting.second[name] = f"has refused {fact.words}"
            if fact.field == ANSWER:
                fitting.rooms[name] = min(fact.tokens, fitting.rooms.get(name, fact.tokens))
        elif fact.kind is Kind.LEAST and limit is not None and limit < fact.tokens:
            fitting.lesser.append(name)


def note_betas(fitting: Fitting, client: str | None, fields: Fields, headers: Mapping[str, str]) -> None:
    """Ask deployments last that are known to refuse a beta of the request; if all refuse the beta, ask only one.

    So the client gets the refusal in that vendor's words.
    """
    lacking: dict[str, str] = {}
    for each in fitting.deployments:
        name, facts = each.name, () if each.learnt is None else each.learnt.of(each.model, client)
        for fact in facts:
            sent_fields = fitting.sent_to(name, fields)
            if fact.kind is Kind.BETA and is_demanded(fact.field, fact.value, sent_fields, headers):
                lacking[name] = f"has refused {fact.words}"
    fitting.second.update(lacking)
    if lacking and len(lacking) == len(fitting.deployments):
        for each in fitting.deployments[1:]:
            fitting.excluded[each.name] = lacking[each.name]
        del fitting.deployments[1:]


def _lengths(too_short: list[Deployment], needs: Needs) -> StatedLengths:
    """Return the tokens of a prompt that is too long for all of these, and the longest of their contexts."""
    return StatedLengths(
        prompt=needs.prompt_tokens, most=max(each.capabilities.context_tokens or 0 for each in too_short)
    )


def _nearly_long_enough(deployments: list[Deployment], needs: Needs) -> list[Deployment]:
    """Return the deployments whose context is long enough if the estimate is a little too high."""
    return [
        each for each in deployments if needs.prompt_tokens <= (each.capabilities.context_tokens or 0) * _ESTIMATE_SLACK
    ]
