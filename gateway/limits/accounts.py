"""An account: all limits of one client, team, end user or model, each with a quota for the current window."""

from collections.abc import Collection, Mapping
from math import inf

from gateway.limits.quota import ROUNDING, Quota
from gateway.limits.windows import UTC_ZONE, WINDOWS

NAMES = {"rpm": "requests", "tpm": "tokens"}  # limits in response headers, with OpenAI's words
BEFORE_BODY = frozenset({"max_parallel", "rpm"})  # held before the body of a request is read


class Account:
    """The quotas of one owner; when a window ends, the quota is replaced."""

    def __init__(self, owner: str, former: Mapping[str, float] = {}) -> None:
        """``former``: the usage of a former account of this owner, by the keys of the quotas."""
        self._former = former
        self.owner = owner  # "client:my-app", "team:research", "model:fast"
        self.above: tuple[str, ...] = ()  # of a client: the other owner charged for the last call, its team
        self.limits: Mapping[str, float] = {}
        self.zone = UTC_ZONE  # of hours, days, weeks and months
        self._quotas: dict[str, Quota] = {}
        # In the current windows: all quotas; those held before a request's body, and after it; those in headers.
        none: tuple[Quota, ...] = ()
        self.listed = self.before_body = self.after_body = self.header_quotas = none
        self.refused_by: Quota | None = None  # the quota that refused the last refused call
        self._replaced: dict[str, Quota] = {}  # by name, of former windows: a wrong clock may be set back to these
        self._quotas_end = False  # whether all windows end at once, as the zone has changed
        self.since_s = self.until_s = -inf  # the latest beginning of the windows, and the earliest end

    def use(self, limits: Mapping[str, float], zone: str = UTC_ZONE) -> None:
        """Apply new limits; usage in the current windows still counts.

        So does usage in another zone, in a day, week or month of the same name. Usage while a limit is removed, or on
        another date of the former zone, does not count here: see ``hand_over``.
        """
        if zone != self.zone:
            self.zone, self.until_s = zone, -inf
            self._quotas_end = True
        if limits is self.limits or limits == self.limits:
            self.limits = limits  # so that the next comparison is one of identity
            return
        self.limits = limits
        for name, quota in self._quotas.items():
            if name in limits:
                quota.set_limit(limits[name])
        self.until_s = -inf

    def quotas(self, unix_s: float) -> tuple[Quota, ...]:
        """Return the quotas of all limits, in the windows around ``unix_s``."""
        if not self.since_s <= unix_s < self.until_s:  # also after the clock was set back
            self.begin_windows(unix_s)
        return self.listed

    def is_over(self, unix_s: float) -> bool:
        """Whether nothing is held, and nothing was used in windows that still last."""
        return all(
            quota.held < ROUNDING
            and (quota.used < ROUNDING or quota.name == "max_parallel" or not _is_in(quota, unix_s))
            for quota in self._quotas.values()
        )

    @property
    def is_idle(self) -> bool:
        """Whether no call holds anything or waits."""
        return all(quota.held < ROUNDING and quota.waiting < ROUNDING for quota in self._quotas.values())

    @property
    def used(self) -> dict[str, float]:
        """The usage in the windows of the limits, by the keys of the quotas."""
        quotas = (quota for quota in self._quotas.values() if quota.name != "max_parallel")
        return {quota.key: quota.used for quota in quotas if quota.used >= ROUNDING}

    def hand_over(self, names: Collection[str]) -> dict[str, float]:
        """Return the usage of the limits of these ``names``, by the keys of the quotas, which begin again at 0."""
        used_by_key = {key: used for key, used in self._former.items() if name_in(key) in names}
        self._former = {key: used for key, used in self._former.items() if key not in used_by_key}
        for quotas in (self._replaced, self._quotas):
            for name in names:
                if (quota := quotas.get(name)) is not None:
                    used_by_key[quota.key] = quota.hand_over()
        return used_by_key

    def begin_windows(self, unix_s: float) -> None:
        """Begin the windows around ``unix_s``."""
        for name, limit in self.limits.items():
            quota = self._quotas.get(name)
            if quota is None or self._quotas_end or not _is_in(quota, unix_s):
                window = WINDOWS[name](unix_s, self.zone)
                if quota is not None and quota.window.name == window.name:
                    quota.window = window  # of another zone
                    continue
                before = self._replaced.get(name)
                if before is not None and before.window.name == window.name:
                    before.window = window
                    before.set_limit(limit)
                    self._quotas[name] = before
                else:
                    new = self._quotas[name] = Quota(self.owner, name, limit, window)
                    new.used = self._former.get(new.key, 0.0)
                if quota is not None:
                    self._replaced[name] = quota
        self._quotas_end = False
        quotas = (self._quotas[name] for name in self.limits)
        self.listed = tuple(sorted(quotas, key=_ends_s, reverse=True))
        self.before_body = tuple(quota for quota in self.listed if quota.name in BEFORE_BODY)
        self.after_body = tuple(quota for quota in self.listed if quota.name not in BEFORE_BODY)
        self.header_quotas = tuple(quota for quota in self.listed if quota.name in NAMES)
        self.since_s = max((quota.window.starts_s for quota in self.listed), default=-inf)
        self.until_s = min((quota.window.ends_s for quota in self.listed), default=inf)


def name_in(key: str) -> str:
    """Return the name of the limit in a quota's key: ``client:app:rpm:m1`` has ``rpm``."""
    return key.rsplit(":", 2)[1]


def _ends_s(quota: Quota) -> float:
    """Return when a quota has something left again. The latest comes first, so that a refused client waits once."""
    return -inf if quota.name == "max_parallel" else quota.window.ends_s


def _is_in(quota: Quota, unix_s: float) -> bool:
    return quota.window.starts_s <= unix_s < quota.window.ends_s
