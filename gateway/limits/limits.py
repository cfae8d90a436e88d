"""Limits of clients and models. A call holds its probable usage; at the end its actual usage is charged instead.

An admission is a comparison in this process. Only if a lease is used up, a call waits for a larger lease, at most
``PATIENCE_S`` (``LeaseTimes.first_s`` for a new window). Dollars are held at the most that a call may cost, and a call
is admitted while anything is left beside other calls' holds: so the cost of one call is the most by which a limit in
dollars is exceeded. While other calls hold all that is left, calls wait in line until one ends (``Lines``): near a
limit calls go one after another. A limit of tokens can be exceeded by the running calls' usage beyond their holds.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from math import inf

import msgspec

from gateway.core.attempts import AttemptRecord, Outcome, TokensSource
from gateway.core.calls import CallRecord, Level, LimitUse, NearLimit
from gateway.limits.accounts import BEFORE_BODY, Account, name_in
from gateway.limits.admission import Admission, Wanted, is_left_beside, settle, without_dollars
from gateway.limits.admission import hold as hold_all
from gateway.limits.quota import ROUNDING, Leases, Quota
from gateway.limits.refusals import LargerThanLimit, LimitHeld, limit_reached, rate_headers
from gateway.limits.windows import (
    COUNTS,
    DOLLARS,
    IN_UTC,
    MINUTE_S,
    SUMMED,
    TOKENS,
    USD,
    UTC_ZONE,
    WINDOWS,
    Zones,
    names_since,
)
from providers import Price, cost_usd

# The owners of accounts, and the levels whose limits count a call.


def owner_of_client(client: str | None) -> str:
    """Return the owner of a client's account; None: local programs, where no clients are configured."""
    return "anonymous" if client is None else f"{_CLIENT}{client}"


def owner_of_team(team: str) -> str:
    """Return the owner of a team's account."""
    return f"{_TEAM}{team}"


def owner_of_model(model: str) -> str:
    """Return the owner of a model's account."""
    return f"{_MODEL}{model}"


def level_of_key(client: str | None, limits: Mapping[str, float], zone: str = UTC_ZONE) -> Level:
    """Return the level of a key; the account is the client's. None: local programs."""
    return Level(owner_of_client(client), "this gateway" if client is None else "this key", limits, zone=zone)


def level_of_team(team: str, limits: Mapping[str, float], zone: str = UTC_ZONE) -> Level:
    """Return the level of all keys of a team."""
    return Level(owner_of_team(team), f"the team {team!r}", limits, zone=zone)


def level_of_model(model: str, limits: Mapping[str, float], zone: str = UTC_ZONE) -> Level:
    """Return the level of a model's limits; ``model``: the name of the payer."""
    return Level(owner_of_model(model), f"the model {model!r}", limits, zone=zone)


def level_of_end_user(scope: str, end_user: str, limits: Mapping[str, float], zone: str = UTC_ZONE) -> Level:
    """Return the level of an end user of a team or key; ``scope`` is the team's or key's owner."""
    return Level(f"{_END_USER}{scope}:{end_user}", "this end user", limits, is_of_body=True, zone=zone)


_CLIENT = "client:"
_TEAM = "team:"
_MODEL = "model:"
_END_USER = "user:"
MOST_END_USERS = 10_000  # with an account here; the usage of further ones is parked
MOST_PARKED = 100_000  # end users; some hundred bytes for each
_PARKED_AT_ONCE = 500


MOST_PAYERS = 4_096  # models: clients may name any list of deployments


class Payer(msgspec.Struct, frozen=True):
    """A model in the eyes of limits. ``owner`` pays for calls: the model itself, or the first model of a comma list."""

    model: str
    owner: str
    limits: Mapping[str, float] = {}  # in dollars and tokens
    dearest: Price | None = None  # for deployments without a price; None: all have a price, or none
    zone: str = UTC_ZONE


class Use(msgspec.Struct, frozen=True):
    """A call's probable usage: tokens including the answer, and US dollars of the attempts that start at once.

    ``most_usd``: the most that the call may cost; 0 if unknown.
    """

    prompt_tokens: float = 0.0
    tokens: float = 0.0
    usd: float = 0.0
    most_usd: float = 0.0

    @property
    def held_usd(self) -> float:
        """The US dollars that are held."""
        return max(self.usd, self.most_usd)

    @property
    def beyond_usd(self) -> float:
        """How much of the held dollars may lie beyond a limit, one call at a time; 0: the most is unknown."""
        return max(ROUNDING, self.most_usd - self.usd) if self.most_usd else 0.0


class BegunHolds:
    """A request's holds on its ``levels`` before its body is read: ``max_parallel`` and ``rpm``."""

    __slots__ = ("held", "levels")

    def __init__(self, levels: Sequence[Level], held: "Sequence[Wanted]") -> None:
        self.levels = levels
        self.held = held

    def end(self, *, counts: bool = True) -> None:
        """Release ``max_parallel``, once. ``counts``: whether the request counts in ``rpm``."""
        held, self.held = self.held, ()
        if held:
            settle(held, _ONE_REQUEST, _COUNTED if counts else _NOTHING)


class _Hold(msgspec.Struct):
    """A call's holds: on quotas of its levels, before and after the body, and on each model (None: no limit)."""

    mine: "Sequence[Wanted]"
    amounts: Mapping[str, float]  # of ``mine``
    begun: BegunHolds | None
    models: "dict[str, tuple[Wanted, Mapping[str, float]] | None]"


class LimitStanding(msgspec.Struct, frozen=True):
    """The usage of one limit in all processes, as far as this process knows; ``used`` is None if it knows nothing."""

    limit: str
    of: float
    used: float | None
    resets_in_s: float | None  # None: the limit counts concurrent calls


_ONE_REQUEST: Mapping[str, float] = {"rpm": 1.0, "max_parallel": 1.0}
_NOTHING: Mapping[str, float] = dict.fromkeys(COUNTS.values(), 0.0)
_COUNTED: Mapping[str, float] = {**_NOTHING, "rpm": 1.0}


class Limits:
    """The limits of clients, teams, end users and models, in this process."""

    def __init__(self, leases: Leases, *, unix_clock: Callable[[], float], clock: Callable[[], float]) -> None:
        """``unix_clock``: for the windows of limits, unless the leases have a clock that all processes share."""
        self._leases = leases
        self._unix_clock = leases.shared_clock or unix_clock
        self._clock = clock
        self._holds: dict[str, _Hold] = {}  # by call id
        self._admission = Admission(leases, clock=clock, unix_clock=self._unix_clock)
        self._accounts: dict[str, Account] = {}  # of clients and teams, by owner
        self._end_users: dict[str, Account] = {}
        self._swept_s = -inf  # from this time on (Unix seconds) unused accounts of end users may be dropped again
        self.sharing = 0  # calls of end users for which there was no account of their own
        self._parked: dict[str, Mapping[str, float]] = {}  # usage by the quota's key, by owner, the oldest first
        self._models: dict[str, Account] = {}  # by the payer's name
        # When limits were set at run time, in Unix seconds, by owner ("": teams and end users) and name.
        self._set_at: dict[tuple[str, str], float] = {}
        self._payers: dict[str, Payer] = {}  # by model; kept for audited losers, which may end after their call

    def check(self, levels: Iterable[Level], *, spends: bool = True, is_begun: bool = False) -> None:
        """Refuse a client with a limit that is known to be used up, before the request is read.

        Without ``spends`` the call costs the operator nothing, and no limit in dollars applies. ``is_begun``: the call
        holds its part of ``BEFORE_BODY`` already; perhaps this part is what used these limits up.

        Raises:
            LimitReached: nothing is left.

        """
        for level in levels:
            account = self._accounts.get(level.owner)
            if account is not None and (quota := account.refused_by) is not None:
                if (not spends and quota.name in DOLLARS) or (is_begun and quota.name in BEFORE_BODY):
                    continue
                account.use(level.limits, level.zone)
                unix_s = self._unix_clock()
                if quota in account.quotas(unix_s) and quota.is_exhausted(self._clock()):
                    raise limit_reached(quota, level.whose, unix_s)
                account.refused_by = None

    def check_least(self, levels: Iterable[Level], least: Use, *, spends: bool = True) -> None:
        """Refuse a call if even its ``least`` use is known to be too much, before work is done for the call.

        ``spends``: as for ``check``.

        Raises:
            LimitReached: too little is left.
            LargerThanLimit: the prompt alone is larger than the ``tpm`` of one of the levels.

        """
        unix_s = self._unix_clock()
        for level in levels:
            if least.prompt_tokens > level.limits.get("tpm", least.prompt_tokens):
                raise LargerThanLimit(least.prompt_tokens, level.limits["tpm"], level.whose)
            for quota in self._account(level, unix_s).quotas(unix_s):
                if not spends and quota.name in DOLLARS:
                    continue
                if quota.name in DOLLARS:  # running calls' holds may be waited for
                    amount, left = quota.least_of(least.usd) if least.usd else 0.0, quota.unspent
                else:
                    amount, left = least.prompt_tokens if quota.name in TOKENS else 0.0, quota.left
                if amount > left + ROUNDING:
                    raise limit_reached(quota, level.whose, unix_s, amount=amount)

    async def begin(
        self, levels: Sequence[Level], names: Collection[str] = BEFORE_BODY, *, before: BegunHolds | None = None
    ) -> BegunHolds:
        """Hold ``max_parallel`` and ``rpm`` before the body is read; ``end`` must be called when the request ends.

        ``names``: which of the two. ``before``: the request's former holds, to which the new ones are added. They are
        of ``levels`` from then on; a reload may have changed the levels.

        Raises:
            LimitReached: too little is left.

        """
        wanted: list[Wanted] = []
        unix_s = self._unix_clock()
        for level in levels:
            account = self._account(level, unix_s)
            if account.before_body:
                quotas = account.before_body
                if names is not BEFORE_BODY:
                    quotas = tuple(quota for quota in quotas if quota.name in names)
                wanted.append((account, quotas, level))
        await self._admission.at_once(wanted, _ONE_REQUEST)
        if before is None:
            return BegunHolds(levels, wanted)
        before.held, before.levels = (*before.held, *wanted), levels
        return before

    async def hold(
        self,
        call_id: str,
        levels: Sequence[Level],
        payer: Payer,
        use: Use,
        *,
        begun: BegunHolds | None = None,
        spends: bool = True,
        is_free: bool = False,
        line_s: float = 0.0,
    ) -> dict[str, str]:
        """Hold a call's probable usage; return the response headers about what is left.

        Waits in line at most ``line_s`` for dollars that running calls hold.

        ``spends``: as for ``check``. ``is_free``: all prices of the model are 0, so no limit in dollars refuses the
        call; a limit may refuse a fallback. ``begun``: the holds of the request. The end of the call must be recorded,
        or ``drop`` called.

        Raises:
            LimitReached: too little is left, for one of the levels or for the model.
            LargerThanLimit: the prompt alone is larger than the ``tpm`` of one of the levels.

        """
        mine: list[Wanted] = []
        amounts: Mapping[str, float] = {}
        headers: dict[str, str] = {}
        if levels:
            unix_s = self._unix_clock()
            header_quotas: list[Quota] = []
            for level in levels:
                if use.prompt_tokens > level.limits.get("tpm", use.prompt_tokens):
                    raise LargerThanLimit(use.prompt_tokens, level.limits["tpm"], level.whose)
                account = self._account(level, unix_s)
                header_quotas += account.header_quotas
                quotas = account.listed if begun is None or level.is_of_body else account.after_body
                mine.append((account, quotas, level))
            usd = use.held_usd
            amounts = {"rpm": 1.0, "max_parallel": 1.0, "tokens": use.tokens, "usd": usd}
            if not spends:
                mine = without_dollars(mine)
            wanted = without_dollars(mine) if is_free and not usd else mine
            await self._admission.in_line(wanted, amounts, beyond_usd=use.beyond_usd, line_s=line_s)
            mine[0][0].above = (levels[1].owner,) if len(levels) > 1 and not levels[1].is_of_body else ()  # the team
            headers = rate_headers(header_quotas, unix_s)
        hold = _Hold(mine, amounts, begun, {})
        if payer.limits or payer.dearest is not None:
            try:
                await self._hold_for_model(hold, payer, use, line_s)
            except BaseException:  # includes cancellation: the client may leave during the wait for a lease
                settle(mine, amounts, _NOTHING)
                self._return_large(hold)
                raise
        self._holds[call_id] = hold
        return headers

    async def hold_fallback(self, call_id: str, payer: Payer, use: Use) -> None:
        """Hold a call's probable usage of the next model; if that model costs more, the client's limits hold more.

        Raises:
            LimitReached: too little is left of the model's limit, or of one of the client's.

        """
        hold = self._holds.get(call_id) or _Hold((), {}, None, {})
        if (more_usd := use.held_usd - hold.amounts.get(USD, inf)) > 0:
            dollars = [(each[0], [quota for quota in each[1] if quota.name in DOLLARS], each[2]) for each in hold.mine]
            more = {USD: more_usd}
            try:
                await self._admission.at_once(dollars, more, beyond_usd=min(more_usd, use.beyond_usd))
            except LimitHeld:  # perhaps only this call holds what is left
                if not use.most_usd or not is_left_beside(dollars, hold.amounts[USD]):
                    raise
                hold_all(dollars, more)
            hold.amounts = {**hold.amounts, USD: use.held_usd}
        await self._hold_for_model(hold, payer, use)
        self._holds[call_id] = hold

    def standings(self, level: Level) -> list[LimitStanding]:
        """Return the usage of a level's limits. Leases nothing, so the usage of other processes may be unknown."""
        unix_s, account, limits = self._unix_clock(), self._known(level.owner), level.limits
        quotas = {} if account is None else {quota.name: quota for quota in account.quotas(unix_s)}
        unasked = 0.0 if self._leases.sees_all else None
        standings = []
        for name, limit in limits.items():
            quota, window = quotas.get(name), WINDOWS[name](unix_s, level.zone)
            amount = None if quota is None else quota.taken
            if amount is None:  # no call of this owner so far, or none since the limit was set or its past was read
                amount = self._leases.recollected(f"{level.owner}:{name}:{window.name}")
                if quota is not None:
                    amount = max(amount, quota.elsewhere.used) + quota.used + quota.held
                amount = amount or unasked
            resets_in_s = None if window.ends_s == inf else round(window.ends_s - unix_s, 1)
            standings.append(LimitStanding(name, limit, amount, resets_in_s))
        return standings

    def counted(self) -> frozenset[str]:
        """Return the keys of the quotas that count usage in this process, also of parked ones."""
        accounts = (*self._accounts.values(), *self._end_users.values(), *self._models.values())
        listed = (quota.key for account in accounts for quota in account.listed)
        return frozenset(chain(listed, *self._parked.values()))

    def hand_over(self, added: Collection[tuple[str, str]], of_payers: Collection[str] = ()) -> dict[str, float]:
        """Return the known usage of limits that are set again, by the quotas' keys; the quotas begin again at 0.

        Usage while the limits were removed counts nowhere in this process; if the zone was another, only usage on the
        same date counts. The caller takes the rest from the ledger.

        ``added``: owner and name of each limit. ``of_payers``: names of limits of all teams and end users.
        """
        used_by_key: dict[str, float] = {}
        self._set_at |= dict.fromkeys([*added, *(("", name) for name in of_payers)], self._unix_clock())
        for owner, name in added:
            if (account := self._known(owner)) is not None:
                used_by_key |= account.hand_over((name,))
        if of_payers:
            teams = [each for owner, each in self._accounts.items() if owner.startswith(_TEAM)]
            for account in (*teams, *self._end_users.values()):
                used_by_key |= account.hand_over(of_payers)
            for owner, used in self._parked.items():
                ended = {key: amount for key, amount in used.items() if name_in(key) in of_payers}
                used_by_key |= ended
                self._parked[owner] = {key: amount for key, amount in used.items() if key not in ended}
        return used_by_key

    def _known(self, owner: str) -> Account | None:
        """Return the account of an owner of any kind; None if no call has come."""
        model = owner.removeprefix(_MODEL) if owner.startswith(_MODEL) else None
        return self._accounts.get(owner) or self._end_users.get(owner) or (self._models.get(model) if model else None)

    def model_dollars(self) -> dict[str, float]:
        """Return the US dollars left today of each called model with a limit, by the payer's name."""
        unix_s = self._unix_clock()
        return {
            name: quota.expected_left
            for name, account in self._models.items()
            for quota in account.quotas(unix_s)
            if quota.name == "usd_per_day" and quota.taken is not None
        }

    def client_dollars(self) -> list[tuple[str, float]]:
        """Return the name and the remaining part of each limit in dollars, of clients and teams that have called.

        The part is between 0 and 1; 0 if too little was left for the last call.
        """
        unix_s = self._unix_clock()
        return [
            (quota.name, quota.expected_left / quota.limit if quota.limit and quota is not account.refused_by else 0.0)
            for account in self._accounts.values()
            for quota in account.quotas(unix_s)
            if quota.name in DOLLARS and quota.taken is not None
        ]

    def end_users_near(self, share: float) -> list[NearLimit]:
        """Return the limits in dollars of end users who have used at least ``share``, as far as this process knows.

        An end user's name is the owner with the end user's hash: ``client:app:HASH``.
        """
        unix_s = self._unix_clock()
        return [
            NearLimit(
                account.owner.removeprefix(_END_USER),
                quota.name,
                *_window_of(quota),
                account.zone,
                used_usd,
                quota.limit,
            )
            for account in self._end_users.values()
            for quota in account.quotas(unix_s)
            if quota.name in DOLLARS
            if 0.0 < share * quota.limit <= (used_usd := quota.elsewhere.used + quota.used)
        ]

    def near(self, share: float) -> list[NearLimit]:
        """Return the limits in dollars of clients, teams and models that have used ``share``, as this process knows.

        Limits of UTC days and months are left out: the ledger knows all processes' usage of these.
        """
        unix_s = self._unix_clock()
        return [
            NearLimit(account.owner, quota.name, *_window_of(quota), account.zone, used_usd, quota.limit)
            for accounts, left_out in ((self._accounts, SUMMED), (self._models, SUMMED - {"usd_per_month"}))
            for account in accounts.values()
            for quota in account.quotas(unix_s)
            if quota.name in DOLLARS and (account.zone != UTC_ZONE or quota.name not in left_out)
            if 0.0 < share * quota.limit <= (used_usd := quota.elsewhere.used + quota.used)
        ]

    def drop(self, call_id: str) -> None:
        """Release the holds of a call whose end was not recorded."""
        hold = self._holds.pop(call_id, None)
        if hold is not None:
            settle(hold.mine, hold.amounts, _NOTHING)
            for wanted, amounts in filter(None, hold.models.values()):
                settle((wanted,), amounts, _NOTHING)
            self._return_large(hold)

    def call_finished(self, record: CallRecord) -> None:
        """Replace a call's holds by the actual usage."""
        hold = self._holds.pop(record.id, None) if self._holds else None
        if hold is None:
            return
        if hold.begun is not None:
            hold.begun.end()
        costs: dict[str, float] = {}
        for attempt in record.attempts:
            if attempt.learnt_as is not None:
                continue  # the client has paid
            model = attempt.model or record.model
            usd = self._cost_usd(attempt, model)
            if attempt.outcome is Outcome.CLIENT_GONE or attempt.is_begun:  # the provider may bill more
                held_usd = max(hold.amounts.get(USD, 0.0), attempt.limit_usd or 0.0)
                high_usd = attempt.counted_high_usd
                usd = max(usd, held_usd if high_usd is None else high_usd)
            costs[model] = costs.get(model, 0.0) + usd
        tokens = float((record.prompt_tokens or 0) + (record.completion_tokens or 0))
        if record.tokens_source is TokensSource.IMPLAUSIBLE:  # once a call is over, a wrong count keeps nobody out
            tokens = min(tokens, hold.amounts.get("tokens", tokens))
        if hold.mine:
            usd = sum(costs.values())
            settle(hold.mine, hold.amounts, {"rpm": 1.0, "max_parallel": 0.0, "tokens": tokens, "usd": usd})
        for model, held in hold.models.items():
            if held is not None:
                wanted, amounts = held
                is_its_answer = model == (record.answered_model or record.model)
                used = {"tokens": tokens if is_its_answer else 0.0, "usd": costs.get(model, 0.0)}
                settle((wanted,), amounts, used)
        self._return_large(hold)

    def attempt_audited(self, attempt: AttemptRecord) -> None:
        """Count the cost of an audited loser that ended after its call, in the current windows."""
        model = attempt.model
        if model is None or attempt.learnt_as is not None or not (self._accounts or self._models):
            return
        payer = self._payers.get(model)
        account = self._accounts.get(owner_of_client(attempt.client))
        above = () if account is None else map(self._accounts.get, account.above)
        self._count((account, *above, self._models.get(payer.owner) if payer else None), self._cost_usd(attempt, model))

    def correct(
        self,
        owners: Iterable[str],
        payer: Payer,
        usd: float,
        *,
        counted_usd: float,
        since_s: float,
        levels: Iterable[Level] = (),
    ) -> None:
        """Count ``usd`` in place of ``counted_usd`` for a call of ``payer`` that ended before its cost was known.

        ``owners``: of the accounts that counted the call at ``since_s`` (Unix seconds). Windows that began later, and
        limits that were set later, have not counted the call. Another process may have counted it. ``levels``: of the
        call's client; since a restart there may be no account for them.
        """
        for level in levels:
            self._account(level, self._unix_clock())
        accounts = [self._accounts.get(owner) or self._end_users.get(owner) for owner in owners]
        model = self._account_of_model(payer) if payer.limits else None
        self._count((*accounts, model), usd, since_s, counted_usd)

    def _count(
        self, accounts: Iterable[Account | None], usd: float, since_s: float = inf, counted_usd: float = 0.0
    ) -> None:
        unix_s = self._unix_clock()
        for account in accounts:
            if account is None:
                continue
            for quota in account.quotas(unix_s):
                if quota.name in DOLLARS and quota.window.starts_s <= since_s:
                    has_counted = since_s >= self._since(account.owner, quota.name)
                    quota.used += usd - counted_usd if has_counted else usd
                    self._leases.keep(quota)

    def _since(self, owner: str, name: str) -> float:
        """Return since when a limit counts usage, in Unix seconds; -inf: since the start of the process."""
        is_of_payers = owner.startswith((_TEAM, _END_USER))
        return self._set_at.get(("" if is_of_payers else owner, name), -inf)

    def _return_large(self, hold: _Hold) -> None:
        """Return to other processes the dollars that an ended call held, if they are much of what is left.

        Calls in line for the dollars in this process try again.
        """
        usd = hold.amounts.get(USD, 0.0)
        freed = [
            (quota, amounts[USD])
            for (_, quotas, _), amounts in filter(None, hold.models.values())
            for quota in quotas
            if quota.name in DOLLARS
        ]
        if usd:
            freed += [(quota, usd) for _, quotas, _ in hold.mine for quota in quotas if quota.name in DOLLARS]
        for quota, amount in freed:
            if quota.is_large(amount):
                quota.drop_beyond()
                self._leases.give_back(quota)
        if lines := self._admission.lines:
            lines.freed(quota for quota, _ in freed)

    async def _hold_for_model(self, hold: _Hold, payer: Payer, use: Use, line_s: float = 0.0) -> None:
        if payer.model in hold.models:  # a second attempt of the call at this model
            return
        if payer.model not in self._payers and len(self._payers) >= MOST_PAYERS:
            del self._payers[next(iter(self._payers))]
        self._payers[payer.model] = payer
        held = None
        if payer.limits:
            account = self._account_of_model(payer)
            level = Level(account.owner, f"the model {payer.owner!r}", {})
            wanted: Wanted = (account, account.quotas(self._unix_clock()), level)
            amounts = {"tokens": use.tokens, USD: use.held_usd}
            held = (wanted, amounts)
            await self._admission.in_line([wanted], amounts, beyond_usd=use.beyond_usd, of_model=True, line_s=line_s)
        hold.models[payer.model] = held

    def _account_of_model(self, payer: Payer) -> Account:
        account = self._models.get(payer.owner)
        if account is None:
            account = self._models[payer.owner] = Account(owner_of_model(payer.owner))
        account.use(payer.limits, payer.zone)
        return account

    def _account(self, level: Level, unix_s: float) -> Account:
        """Return a level's account, up to date."""
        accounts = self._end_users if level.is_of_body else self._accounts
        account = accounts.get(level.owner)
        if account is None:
            account = self._end_user_account(level.owner) if level.is_of_body else Account(level.owner)
            (self._end_users if level.is_of_body else self._accounts)[account.owner] = account
        is_same = level.limits is account.limits and level.zone == account.zone
        if not is_same or not account.since_s <= unix_s < account.until_s:  # spares two calls in the usual case
            account.use(level.limits, level.zone)
            account.quotas(unix_s)
        return account

    def _end_user_account(self, owner: str) -> Account:
        """Return a new account of an end user, with the parked usage.

        If there are too many accounts, and all of them are in use, return the account that the scope's end users share.
        """
        if len(self._end_users) >= MOST_END_USERS:
            unix_s = self._unix_clock()
            if unix_s >= self._swept_s:
                self._swept_s = unix_s + MINUTE_S
                for name in [name for name, each in self._end_users.items() if each.is_over(unix_s)]:
                    for quota in self._end_users.pop(name).listed:
                        self._leases.forget(quota)
            if len(self._end_users) >= MOST_END_USERS:
                self._park()
        if len(self._end_users) < MOST_END_USERS:
            return Account(owner, self._parked.pop(owner, {}))
        self.sharing += 1
        shared = f"{owner.rpartition(':')[0]}:others"
        return self._end_users.get(shared) or Account(shared)

    def _park(self) -> None:
        """Replace idle accounts of end users, the oldest first, by their usage in windows that have not ended."""
        idle = (account for account in self._end_users.values() if account.is_idle)
        for account in list(islice(idle, _PARKED_AT_ONCE)):
            del self._end_users[account.owner]
            for quota in account.listed:
                self._leases.forget(quota)
            if used := account.used:
                self._parked[account.owner] = used
        while len(self._parked) > MOST_PARKED:
            del self._parked[next(iter(self._parked))]

    def _cost_usd(self, attempt: AttemptRecord, model: str) -> float:
        """Return an attempt's cost in US dollars; without a price, by the dearest price of the vendor or the model."""
        if attempt.cost_usd is not None:
            return attempt.cost_usd
        dearest = None if (payer := self._payers.get(model)) is None else payer.dearest
        usd = cost_usd(dearest, attempt.prompt_tokens, attempt.completion_tokens or 0) or 0.0
        return usd if attempt.limit_usd is None else max(usd, attempt.limit_usd)


def _window_of(quota: Quota) -> tuple[str, float, float]:
    return quota.window.name, quota.window.starts_s, quota.window.ends_s


# Usage before the start of the process, by quota.


def used_by_quota(
    rows: Iterable[LimitUse],
    unix_s: float,
    teams: Mapping[str, str] = {},
    payer_of: Callable[[str], str] = str,
    zones: Zones = IN_UTC,
) -> dict[str, float]:
    """Return the US dollars, and the tokens, by the key of the quota that counts them.

    ``teams``: by client; the usage of other teams comes from rows of teams. ``payer_of``: returns the model that pays
    for calls of a name, e.g. the first model of a list.
    """
    used: dict[str, float] = {}
    windows = {zone: names_since(zone, unix_s) for zone in zones.all}
    for row in rows:
        for owner, zone in _owners(row, teams, payer_of, zones):
            for in_dollars, in_tokens, window in windows[zone].get(row.since_s, ()):
                for name, amount in ((in_dollars, row.usd), (in_tokens, row.tokens)):
                    if amount:
                        key = f"{owner}:{name}:{window}"
                        used[key] = used.get(key, 0.0) + amount
    return used


def _owners(
    row: LimitUse, teams: Mapping[str, str], payer_of: Callable[[str], str], zones: Zones
) -> Iterator[tuple[str, str]]:
    """Yield the owners of the accounts that count the usage in a row, each with the zone of the owner's windows."""
    zone, client = zones.of_client(row.client), owner_of_client(row.client)
    if row.model is not None:
        yield owner_of_model(payer_of(row.model)), zones.default
    elif row.team is None and row.end_user is None:
        yield client, zone
        if (team := teams.get(row.client or "")) is not None:
            yield owner_of_team(team), zones.default
    else:
        scope = client
        if row.team is not None:
            scope, zone = owner_of_team(row.team), zones.default
            if (row.client or "") not in teams:
                yield scope, zone
        if row.end_user is not None:
            yield level_of_end_user(scope, row.end_user, {}).owner, zone


def spent_by_owners(
    calls: Iterable[tuple[Iterable[str], str, float, float]],
    unix_s: float,
    payer_of: Callable[[str], str] = str,
    zones: Zones = IN_UTC,
) -> dict[str, float]:
    """Return the US dollars of calls by the key of the quota that counts them.

    ``calls``: the owners of the call's accounts, the model, US dollars, and the beginning in Unix seconds.
    """
    spent: dict[str, float] = {}
    windows = {zone: names_since(zone, unix_s) for zone in zones.all}
    for owners, model, usd, since_s in calls:
        for owner in (*owners, owner_of_model(payer_of(model))):
            for starts_s, names in windows[zones.of_client(_client_in(owner))].items():
                for in_dollars, _, window in names if starts_s <= since_s else ():
                    key = f"{owner}:{in_dollars}:{window}"
                    spent[key] = spent.get(key, 0.0) + usd
    return spent


def _client_in(owner: str) -> str:
    """Return the client of an account, or of an end user's account; empty for other owners."""
    if owner.startswith(_CLIENT):
        return owner.removeprefix(_CLIENT)
    return owner.removeprefix(f"{_END_USER}{_CLIENT}").rpartition(":")[0] if owner.startswith(_END_USER) else ""
