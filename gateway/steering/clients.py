"""Names of models that clients make up, and clients' own keys, with the health that these keys have shown."""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from gateway.core.attempts import AttemptRecord, AttemptStart, Outcome, Role
from gateway.core.prompt_classes import PromptClass
from gateway.core.race_failures import SkippedDeployment
from gateway.steering.counts import Counts, cut, event
from gateway.steering.health import Health, Trouble
from gateway.steering.leaderboard import not_asked
from gateway.steering.learning import OPERATORS, TIMEOUTS, UNAUTHORIZED
from gateway.steering.own_delay import OwnDelay
from gateway.steering.prediction import size_of
from gateway.steering.samples import NOT_COUNTED, of_end, of_token
from gateway.steering.snapshots import Snapshots
from providers import ErrorKind

# The names of models.

MOST_NAMES, MOST_NAMES_A_CLIENT = 1_000, 100  # of models that clients make up


class ClientsNames:
    """The names of models that clients make up, lists of models and of deployments: the last used stay."""

    def __init__(self) -> None:
        self._names: OrderedDict[str, set[str | None]] = OrderedDict()  # by name, the clients; the last used at the end
        self._of: dict[str | None, OrderedDict[str, None]] = {}  # by client, the names; the last used at the end
        self._again: set[str] = set()  # names that were asked for more than once

    def asked(self, name: str, client: str | None) -> list[str]:
        """Note that ``client`` asks for a model; return the names that must be forgotten to make room for its name."""
        mine = self._of.setdefault(client, OrderedDict())
        if name in self._names:
            self._again.add(name)
        clients = self._names.setdefault(name, set())
        clients.add(client)
        mine[name] = None
        mine.move_to_end(name)
        self._names.move_to_end(name)
        forgotten = []
        if len(mine) > MOST_NAMES_A_CLIENT:
            oldest, _ = mine.popitem(last=False)
            self._names[oldest].discard(client)
            if not self._names[oldest]:
                forgotten.append(oldest)
        if len(self._names) - len(forgotten) > MOST_NAMES:
            forgotten.append(next(iter(self._names)))
        for each in forgotten:
            self._forget(each)
        return forgotten

    def is_known(self, name: str) -> bool:
        """Whether the name was asked for more than once, and is still kept."""
        return name in self._again

    def _forget(self, name: str) -> None:
        self._again.discard(name)
        for client in self._names.pop(name):
            names = self._of[client]
            names.pop(name, None)
            if not names:
                del self._of[client]


# What is learnt with clients' own keys, by deployment and key: apart from the operator's, and from each other's.
#
# How soon and how fast a deployment answers is its provider's doing, and counts for all. Whatever fails is learnt for
# that key alone: its rate limit, its refusal, its strikes. Nothing of it is logged, recorded as an outage, or shared
# with other replicas.

MOST_KEYS = 10_000  # keys at deployments; those used last stay
KEPT_S = 3600.0  # without an attempt


class _Launched(msgspec.Struct, frozen=True):
    unix_s: float
    in_flight: float  # other attempts with the same key at the launch
    in_minute: int  # launches with the key in the minute before
    deployment: str
    delayed_s: float  # the loop's total delay until then


class TenantLearning:
    """The health of deployments as each client's key shows it. Names are those of ``Deployment.learnt_as``."""

    def __init__(
        self,
        count: Callable[[str, Counts, float], None],
        snapshots: Snapshots,
        own_delay: OwnDelay,
        *,
        clock: Callable[[], float],
        unix_clock: Callable[[], float],
    ) -> None:
        """``count`` adds counts of a model, at a Unix time, to those of all calls."""
        self._count = count
        self._snapshots = snapshots
        self._own_delay = own_delay
        self._clock = clock
        self._unix_clock = unix_clock
        self._healths: dict[str, Health] = {}  # the last used at the end
        self._launched: dict[str, _Launched] = {}  # running attempts, by id

    def health_of(self, name: str) -> Health:
        """Return the health of a deployment with a client's key, a new one if nothing has happened with the key yet."""
        health = self._healths.get(name)
        if health is None:
            if len(self._healths) >= MOST_KEYS:
                del self._healths[next(iter(self._healths))]
            health = self._healths[name] = Health()
        return health

    def known(self, name: str) -> Health:
        """Return the health of a deployment with a key; one that is not kept if nothing has happened with it yet."""
        return self._healths.get(name) or Health()

    def full(self, learnt_as: Mapping[str, str], now_s: float) -> frozenset[str]:
        """Return the deployments where the limit of the client's key has no room for an extra attempt."""
        healths = self._healths
        return frozenset(
            [each for each, name in learnt_as.items() if name in healths and not healths[name].has_room(now_s)]
        )

    def not_asked(
        self, learnt_as: Mapping[str, str], deployments: Iterable[str], asked: Collection[str], now_s: float
    ) -> tuple[SkippedDeployment, ...]:
        """Return which of ``deployments``, without those ``asked``, are out, cooling down or broken, and why."""
        healths = {each: self._healths[name] for each, name in learnt_as.items() if name in self._healths}
        return not_asked(healths, deployments, asked, now_s)

    def attempt_started(self, name: str, start: AttemptStart) -> None:
        """Count the attempt as in flight."""
        health, now_s = self.health_of(name), self._clock()
        self._healths[name] = self._healths.pop(name)
        others = health.launched(now_s)
        in_minute, delayed_s = health.launches.in_minute(now_s), self._own_delay.lateness.total_s
        self._launched[start.id] = _Launched(self._unix_clock(), others, in_minute, start.deployment, delayed_s)

    def first_token(  # noqa: PLR0917 - as of a recorder
        self, name: str, model: str, prompt_class: PromptClass, start: AttemptStart, ttft_s: float, ago_s: float
    ) -> None:
        """Count a first token, ``ago_s`` seconds ago; the deployment is healthy with this key."""
        launched, now_s = self._launched.get(start.id), self._clock() - ago_s
        health, measured = self.health_of(name), prompt_class.measured
        size = size_of(start.asked_tokens, prompt_class.size)
        estimate = self._snapshots.at(model, measured, size).of(start.deployment)
        sizing = self._snapshots.sizing(model, measured, start.deployment)
        health.delivered(self._own_delay.without_own_delay(ttft_s, launched, now_s), estimate.well_q95_s, now_s)
        counts = of_token(start, prompt_class, ttft_s)
        if prompt_class.is_sampled:
            counts[event(start.deployment, measured, ttft_s / sizing.factor(size))] = 1.0
        if counts:
            self._count(model, counts, self._unix_clock() - ago_s if launched is None else launched.unix_s)
        sizing.seen(size, ttft_s)
        if launched is not None:
            health.answered(prompt_class, launched.in_flight, ttft_s, now_s)

    def attempt_ended(
        self, name: str, model: str, prompt_class: PromptClass, attempt: AttemptRecord, ago_s: float
    ) -> None:
        """Handle the attempt's end, ``ago_s`` seconds ago. An attempt that did not fail counts for all keys."""
        health, launched, now_s = self.health_of(name), self._launched.pop(attempt.id, None), self._clock() - ago_s
        health.ended()
        if attempt.role is Role.PROBE:
            health.probe_ended()
        if attempt.headroom is not None:
            health.limit_left(attempt.headroom, now_s, 0 if launched is None else launched.in_minute)
        if attempt.outcome.failed:
            self._failed(health, prompt_class, attempt, launched, now_s)
            return
        unix_s = self._unix_clock() - ago_s if launched is None else launched.unix_s
        counts = of_end(attempt, prompt_class)
        if attempt.censored_at_ms is not None and attempt.outcome.was_cut:
            self._cut(health, model, prompt_class, attempt, counts, now_s)
        if counts:
            self._count(model, counts, unix_s)

    def under_way(self, deployment: str) -> tuple[str, ...]:
        """Return the ids of the running attempts at ``deployment`` with any client's key."""
        return tuple(each for each, launched in self._launched.items() if launched.deployment == deployment)

    def forget(self) -> None:
        """Forget the keys that were not used for a while."""
        since_s = self._clock() - KEPT_S
        self._healths = {
            name: each for name, each in self._healths.items() if each.in_flight or each.launched_at_s >= since_s
        }

    def _failed(
        self,
        health: Health,
        prompt_class: PromptClass,
        attempt: AttemptRecord,
        launched: _Launched | None,
        now_s: float,
    ) -> None:
        kind = attempt.error_kind
        if kind is None or kind in NOT_COUNTED:
            return
        is_refused = kind in OPERATORS
        if is_refused and attempt.status_code != UNAUTHORIZED and not (prompt_class.is_answer or prompt_class.is_whole):
            return  # the model may have no such API
        health.trouble = Trouble(kind, attempt.status_code, attempt.error_message)
        if kind == ErrorKind.RATE_LIMITED:
            health.rate_limited(attempt.retry_after_s, now_s)
        elif is_refused:
            health.refuse(now_s)
        else:
            if attempt.retry_after_s is not None:
                health.cool(attempt.retry_after_s, now_s)
            is_own = kind in TIMEOUTS and self._own_delay.explains(launched, self._unix_clock(), now_s)
            if attempt.ttft_ms is None and kind != ErrorKind.INVALID_ANSWER and not is_own:
                health.strike(now_s)

    def _cut(  # noqa: PLR0917 - likewise
        self,
        health: Health,
        model: str,
        prompt_class: PromptClass,
        loser: AttemptRecord,
        counts: Counts,
        now_s: float,
    ) -> None:
        """Handle an attempt without a first token; if its key fails, the age tells nothing of other keys."""
        age_s, deployment = (loser.censored_at_ms or 0.0) / 1000, loser.deployment
        measured, size = prompt_class.measured, size_of(loser.asked_tokens, prompt_class.size)
        if health.tripped:
            q95_s = self._snapshots.at(model, measured, size).of(deployment).well_q95_s
            if loser.outcome is Outcome.LOST:
                health.cut(age_s, q95_s, now_s)
            counts.clear()
        elif prompt_class.is_sampled:
            factor = self._snapshots.sizing(model, measured, deployment).factor(size)
            counts[cut(deployment, measured, age_s / factor)] = 1.0
