"""A model for one request: the permitted deployments, the parameters, and the headers that report them."""

from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec

from gateway.access import Client
from gateway.api.fitting import fit_to_count, fits_all, fitted, is_odd
from gateway.api.preferences import CONSUMED, NOTHING, DeploymentChoice, is_passed_on, preferred
from gateway.api.provider_state import StoredAt
from gateway.api.request import ParsedRequest
from gateway.api.translations import Fitting, Question
from gateway.core.calls import AS_ASKED
from gateway.core.errors import InvalidRequest, NoDeploymentFits, NothingStored, ResponseNotFound
from gateway.fleet import Deployment, Model, Parameters
from gateway.http import LOWERED, values_of
from gateway.limits import Use
from gateway.settings import RaceSettings, Unpriced
from providers import (
    Meaning,
    finished,
    lets_search,
)
from providers.dialects import DIALECTS, Malformed

_STORING = frozenset({"store"})
THREAD = "thread"
_BEGINNING = frozenset({THREAD})

SHORT_BYTES = 8 * 1024  # a shorter body has few values
LONG_BYTES = 256 * 1024
FEW_VALUES = 1000  # JSON values that are translated in a hundredth of a second
# Measured maxima, for small blocks, turns, calls and tools: Messages 277, chat 262, Responses 277, Gemini 349.
BYTES_PER_VALUE = 400

IGNORED = "x-holeshot-ignored"  # preferences, and parts of a body in another API's form, without effect here


class ResolvedModel:
    """A model with one request's preferences: permitted deployments, parameters, and headers that report them."""

    def __init__(
        self,
        model: Model,
        parsed: ParsedRequest,
        client: Client,
        *,
        configured: Model,
        made_by: StoredAt | None,
        is_race_set: bool,
        is_fallback: bool,
        refuses_unpriced: bool,
        is_unseen: bool = False,
    ) -> None:
        """``model``: with the client's keys and what the request sets; ``configured``: without.

        ``made_by``: where the objects are that the request names; None: it names none. ``is_race_set``: the operator or
        the client has set the race. ``is_fallback``: another model has failed. ``refuses_unpriced``: leave out
        deployments whose vendor has no known price of a unit that this request may bill. ``is_unseen``: no other model
        is left that sees pictures.

        Raises:
            ResponseNotFound, NothingStored: as for ``having``.

        """
        self.configured = configured
        self.is_fallback = is_fallback
        self._is_unseen = is_unseen
        # Whether other models are asked after this one.
        self._has_fallbacks = bool(model.fallbacks or (parsed.preferences.models[1:] and not is_fallback))
        self.model = model
        self.is_race_set = is_race_set
        self.asked = parsed  # as the client sent it
        self.parsed = parsed  # for this model: with its parameters, and its limits among the needs
        self.response_headers = dict(parsed.response_headers)
        self.key_name: str | None = None  # the only key of the provider that has the objects that the request names
        self._client = client
        self._deployments = client.deployments(model)
        self._chosen: DeploymentChoice | None = None
        self._is_kept = False
        self._unpriced: dict[str, str] = {}
        if parsed.preferences is not NOTHING and not is_passed_on(model):
            self._prefer(client)
        if model.parameters is not None and parsed.relayed is None:
            self._apply(model.parameters)
        elif model.parameters is not None and parsed.relayed is not None and parsed.relayed.counts:
            counted = model.parameters.counted(self.parsed.fields, DIALECTS[parsed.relayed.api])
            self.parsed = msgspec.structs.replace(self.parsed, fields=counted)
        if made_by is not None:
            self._restrict_to(made_by)
        if refuses_unpriced:
            self._leave_out_unpriced()

    @property
    def race_asked(self) -> RaceSettings:
        """The requested race settings, even if fewer deployments are left than they need."""
        chosen, parsed = self._chosen, self.parsed
        is_raced_so = chosen is not None and not parsed.stateful and parsed.relayed is None
        return chosen.asked if chosen is not None and is_raced_so else self.model.race

    @property
    def is_restricted(self) -> bool:
        """Whether the request restricts or orders the deployments."""
        chosen = self._chosen
        return self._is_kept or (chosen is not None and bool(chosen.excluded or chosen.order))

    def _restrict_to(self, stored: StoredAt) -> None:
        """Keep only the deployments that have the objects that the request names; all, if its answer was translated.

        Requests that pass unread are never translated.

        Raises:
            ResponseNotFound, NothingStored: as for ``having``.

        """
        deployments = having(self._deployments, stored)
        if self.parsed.converses == THREAD and not any(map(self._keeps_thread, deployments)):
            raise lost_thread(f"{stored.deployment} keeps none")
        dialect, tools = self.parsed.dialect, self.parsed.needs.tools
        is_read = self.parsed.relayed is None
        if not is_read or any(
            each.asked_in(dialect, tools=tools, client=self._client.name) is dialect for each in deployments
        ):
            self.key_name = stored.key_name
            self._is_kept = True
            self._deployments = deployments

    def _leave_out_unpriced(self) -> None:
        sound = ("audio_input",) if self.parsed.needs.audio else ()
        searches = lets_search(self.parsed.fields)
        unknown = {
            each.name: uncounted_units(each, (*sound, "web_search") if searches or each.searches else sound)
            for each in self._deployments
            if each.tenant is None
        }
        self._unpriced = {name: without_price(units) for name, units in unknown.items() if units}
        self._deployments = [each for each in self._deployments if each.name not in self._unpriced]

    def is_light(self, most_values: int) -> bool:
        """Whether ``fitted`` takes far less than a hundredth of a second: the request is short, or not translated."""
        if not self._deployments:
            return True
        dialect, size = self.parsed.dialect, self.parsed.size
        if self._is_native:
            if dialect.requests.thoughts.without_foreign is None and (
                not is_odd(dialect, self.parsed.fields, self.parsed.needs)
            ):
                return True
            most_values = FEW_VALUES
        if size > LONG_BYTES:
            return False
        few = min(most_values, FEW_VALUES)
        return self.counted(few) <= few

    def counted(self, most: int) -> int:
        """Count the values; exactly only if they seem to be more than ``most``."""
        values = self.parsed.values
        if values is None or values > most:
            values = finished(values_of(self.parsed.fields.values(), most))
        return values

    def least_use(self) -> Use:
        """Return the least use of limits: the prompt alone, where it costs least."""
        tokens, prices = self.parsed.needs.prompt_tokens, self.model.prices
        priced = [prices[each.name] for each in self._deployments if each.name in prices]
        each_usd = [
            price.input_usd if price.cached_input_usd is None else min(price.input_usd, price.cached_input_usd)
            for price in priced
        ]
        is_known = len(priced) == len(self._deployments) and all(each.tenant is None for each in self._deployments)
        return Use(tokens, tokens, tokens * min(each_usd) if is_known else 0.0)

    def bytes_to_build(self, values: int, most: int) -> int:
        """Return the memory that the objects of ``values`` take during a translation; 0 without a translation."""
        return 0 if values > most or self._is_native else values * BYTES_PER_VALUE

    @property
    def _is_native(self) -> bool:
        """Whether all deployments are asked in the request's own dialect."""
        dialect, tools = self.parsed.dialect, self.parsed.needs.tools
        may_differ = dialect.requests.tools.has_others is not None
        return all(
            each.asked_in(dialect, tools=tools, client=self._client.name) is dialect
            and not (may_differ and each.functions_only)
            and not each.refused_tools(dialect, client=self._client.name)
            for each in self._deployments
        )

    def fitted(self, most_values: int, values: int = 0) -> Fitting:
        """Return the deployments that can answer and that the preferences permit; the others with reasons.

        ``most_values``: the maximum for a translation. ``values``: as ``counted``; 0: few, as the request ``is_light``.

        Raises:
            ApiError: as for ``fitting.fitted``; also NoDeploymentFits if no deployment has a known price.

        """
        if self._unpriced and not self._deployments:
            raise NoDeploymentFits(self.model.name, self._unpriced)
        parsed, client, needs = self.parsed, self._client, self.parsed.needs
        is_to_be_stored = parsed.is_to_be_stored
        is_taught = False
        for learnt in self.model.learnt:
            is_taught = is_taught or (learnt.steers and learnt.steers_for(self._client.name))
        if (
            self._chosen is None
            and not (is_taught or is_to_be_stored)
            and not client.demanding
            and not self._unpriced
            and parsed.dialect in self.model.common.speaks
            and needs.ordinary
            and fits_all(parsed, self.model)
        ):
            return Fitting(self._deployments, {}, {})
        excluded = self._unpriced if self._chosen is None else {**self._chosen.excluded, **self._unpriced}
        question = Question(
            self.model.name,
            parsed.dialect,
            parsed.fields,
            needs,
            client.require,
            values,
            most_values,
            "store" in parsed.added and not parsed.stores,
            self._served(),
            is_to_be_stored,
            not self.model.fallbacks,  # these may give all of it
            self._has_fallbacks,
            (self._has_fallbacks or self.is_fallback) and not self._is_unseen,
            self._client.name,
        )
        try:
            fitting = fitted(question, self._deployments)
        except NoDeploymentFits as error:
            if not excluded:
                raise
            too_long = error.lengths if error.meaning is Meaning.TOO_LONG else None
            raise NoDeploymentFits(self.model.name, {**error.reasons, **excluded}, too_long=too_long) from None
        fitting.excluded.update(excluded)
        lowered_before = self.response_headers.get(LOWERED)
        if lowered_before is not None and any(each.lowered for each in fitting.rendered.values()):
            del self.response_headers[LOWERED]
            for each in fitting.deployments:
                rendered = fitting.rendered.get(each.name, AS_ASKED)
                lowered = tuple(dict.fromkeys((*lowered_before.split(", "), *rendered.lowered)))
                fitting.rendered[each.name] = msgspec.structs.replace(rendered, lowered=lowered)
        field = parsed.converses
        if field == THREAD and not self._is_kept and len(fitting.deployments) > 1:
            raise lost_thread("which of the deployments keeps it is not known: a thread is stored at one provider")
        if field is not None and not self._is_kept and len(fitting.deployments) > 1:
            raise InvalidRequest(
                f"{field!r} is stored at one provider: use a model with one deployment, or an answer made here",
                param=field,
            )
        return fitting

    def able(self, obstacle: Callable[[Deployment], str | None]) -> Fitting:
        """Return the deployments without an obstacle that the preferences permit; the others with reasons.

        The answer passes unread, and so does the request, but for a prompt whose tokens are counted.

        Raises:
            NoDeploymentFits: there is none.

        """
        parsed, client = self.parsed, self._client
        excluded = {} if self._chosen is None else dict(self._chosen.excluded)
        fitting = Fitting([], excluded, {})
        for deployment in self._deployments:
            reason = obstacle(deployment)
            if reason is None:
                fitting.deployments.append(deployment)
            else:
                excluded[deployment.name] = reason
        if not fitting.deployments:
            raise NoDeploymentFits(self.model.name, excluded)
        if parsed.relayed is not None and parsed.relayed.counts:
            dialect = DIALECTS[parsed.relayed.api]
            fit_to_count(
                Question(self.model.name, dialect, parsed.fields, parsed.needs, client.require, client=client.name),
                fitting,
            )
        return fitting

    def _served(self) -> frozenset[str]:
        """Return the fields whose loss harms no client.

        ``store`` is harmless where the gateway keeps the answer: deployments that store nothing are asked after those
        that may. So is ``thread`` at the beginning of a thread, where the request has the whole conversation: if the
        answering deployment keeps no threads, the error of the next turn says so (``lost_thread``). But if no
        deployment keeps threads, and there is no fallback, the client is refused at once, and repeats the request
        without ``thread``.
        """
        parsed = self.parsed
        has_threads = THREAD in parsed.dialect.requests.essential  # in other APIs the name has no meaning
        if has_threads and THREAD in parsed.fields and parsed.converses is None:
            may_lose = self.is_fallback or self._has_fallbacks or any(map(self._keeps_thread, self._deployments))
            return _BEGINNING if may_lose else frozenset()
        return _STORING if parsed.stores and parsed.remembering is not None else frozenset()

    def _keeps_thread(self, deployment: Deployment) -> bool:
        """Whether a deployment, asked in Messages, does not ignore a thread."""
        parsed = self.parsed
        dialect, thread = parsed.dialect, {THREAD: parsed.fields[THREAD]}
        is_own = deployment.asked_in(dialect, tools=parsed.needs.tools, client=self._client.name) is dialect
        return is_own and not deployment.upstream.losses(dialect, deployment.model, thread)

    @property
    def order(self) -> tuple[str, ...]:
        """The deployments to be asked one after the other, before all others, as the request prefers."""
        return () if self._chosen is None else self._chosen.order

    @property
    def may_fail_over(self) -> bool:
        """Whether another deployment may be asked after the first."""
        return self._chosen is None or self._chosen.failover

    def _prefer(self, client: Client) -> None:
        parsed = self.parsed
        chosen = self._chosen = preferred(parsed.preferences, self.model, self._deployments, client)
        self._deployments = list(chosen.deployments)
        if not parsed.stateful and parsed.relayed is None:
            self.model = msgspec.structs.replace(self.model, race=chosen.race)
        if chosen.unsupported:
            ignored_before = self.response_headers.get(IGNORED)
            self.response_headers[IGNORED] = ", ".join(
                chosen.unsupported if ignored_before is None else (ignored_before, *chosen.unsupported)
            )
        fields = {key: value for key, value in parsed.fields.items() if key not in CONSUMED}
        self.parsed = msgspec.structs.replace(parsed, fields=fields)

    def _apply(self, parameters: Parameters) -> None:
        parsed = self.parsed
        fields, lowered = parameters.applied(parsed.fields, parsed.dialect)
        requests, limit = parsed.dialect.requests, parameters.most_tokens
        is_shorter = not {*requests.parameters.answer_limits}.isdisjoint(lowered)
        if requests.with_limit is not None and limit is not None and is_shorter:
            with suppress(Malformed):  # the provider reports the error in its own words
                within, also = requests.with_limit(fields, limit)
                fields, lowered = dict(within), tuple(dict.fromkeys((*lowered, *also)))
        if lowered:
            self.response_headers[LOWERED] = ", ".join(lowered)
        most, needs = parameters.most_tokens, parsed.needs
        if most is not None and (needs.max_tokens is None or needs.max_tokens > most):
            needs = msgspec.structs.replace(needs, max_tokens=most)
        self.parsed = msgspec.structs.replace(parsed, fields=fields, needs=needs)


# Units that no limit in dollars can count.

REFUSE: Unpriced = "refuse"
COUNT_KNOWN: Unpriced = "count_known"


def uncounted_units(deployment: Deployment, units: Iterable[str] = ()) -> tuple[str, ...]:
    """Return which of input, output and ``units`` have no known price, neither here nor at the deployment's vendor."""
    price = deployment.price or deployment.listed
    return ("input", "output", *units) if price is None else price.uncounted(units)


def without_price(units: Iterable[str]) -> str:
    """Return, for a message, why a deployment may not be used where a limit in dollars applies."""
    return (
        f"has no known price of {', '.join(units)}, and a limit in dollars applies: the operator may set its"
        " price_per_mtok"
    )


def lost_thread(why: str) -> NothingStored:
    """Return the error after which Anthropic's SDKs send the whole conversation, in a new thread.

    ``_replay_reason`` in lib/threads/_thread_state.py of github.com/anthropics/anthropic-sdk-python, read on
    2026-11-29; ``providers/dialects/messages/events.py`` adds the code that the SDKs look for.
    """
    return NothingStored(
        f"'thread.previous_message_id': the 'thread' cannot be continued: {why}; send the whole conversation",
        param="thread.previous_message_id",
    )


def having(deployments: Iterable[Deployment], stored: StoredAt) -> list[Deployment]:
    """Return the ``deployments`` that have the object that a request names (a file, a stored response).

    Raises:
        ResponseNotFound, NothingStored: no deployment; the provider does not serve this model, or not this client.

    """
    name = stored.deployment
    provider = name.partition("/")[0]
    if stored.is_exact:
        if matching := [each for each in deployments if each.name == name]:
            return matching
        raise ResponseNotFound(
            f"the previous response is stored at {name}, which no longer serves this model for this key",
            param=stored.field,
        )
    if matching := [each for each in deployments if each.provider == provider]:
        return matching
    raise NothingStored(
        f"'{stored.field}' is stored at {provider}, which does not serve this model for this key", param=stored.field
    )
