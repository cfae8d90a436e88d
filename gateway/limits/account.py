"""An account: all limits of one client or one model, each with its quota in the present window."""

from collections.abc import Mapping
from math import inf

from gateway.limits.quota import Quota
from gateway.limits.windows import WINDOWS


def owner_of_client(client: str | None) -> str:
    """Return the owner of a client's account; None: local programs, while there are no clients."""
    return "anonymous" if client is None else f"client:{client}"


def owner_of_model(model: str) -> str:
    """Return the owner of a model's account."""
    return f"model:{model}"


class Account:
    """The quotas of one owner, replaced as their windows end."""

    def __init__(self, owner: str) -> None:
        self.owner = owner  # "client:my-team", "model:fast"
        self._limits: Mapping[str, float] = {}
        self._quotas: dict[str, Quota] = {}
        self._listed: tuple[Quota, ...] = ()
        self.refused_by: Quota | None = None  # which had too little for the last call that was refused
        self._replaced: dict[str, Quota] = {}  # of the windows before: a clock that was wrong may come back to them
        self._since_s = self._until_s = -inf  # when the last of the windows began, and the first of them ends

    def use(self, limits: Mapping[str, float]) -> None:
        """Apply these limits. If they are others than before, what was used in the present windows counts on.

        So it does for a limit that is taken away for a while; only what is used meanwhile does not count.
        """
        if limits is self._limits or limits == self._limits:
            self._limits = limits  # the next comparison is one of identity
            return
        self._limits = limits
        for name, quota in self._quotas.items():
            if name in limits:
                quota.relimit(limits[name])
        self._until_s = -inf

    def quotas(self, unix_s: float) -> tuple[Quota, ...]:
        """Return the quotas of all limits, in the windows around ``unix_s``."""
        if not self._since_s <= unix_s < self._until_s:  # also when the clock was set back
            self._turn(unix_s)
        return self._listed

    def _turn(self, unix_s: float) -> None:
        for name, limit in self._limits.items():
            quota = self._quotas.get(name)
            if quota is None or not _is_in(quota, unix_s):
                before = self._replaced.get(name)
                if before is not None and _is_in(before, unix_s):
                    before.relimit(limit)
                    self._quotas[name] = before
                else:
                    self._quotas[name] = Quota(self.owner, name, limit, WINDOWS[name](unix_s))
                if quota is not None:
                    self._replaced[name] = quota
        self._listed = tuple(self._quotas[name] for name in self._limits)
        self._since_s = max((quota.window.starts_s for quota in self._listed), default=-inf)
        self._until_s = min((quota.window.ends_s for quota in self._listed), default=inf)


def _is_in(quota: Quota, unix_s: float) -> bool:
    return quota.window.starts_s <= unix_s < quota.window.ends_s
