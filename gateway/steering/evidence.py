"""Evidence: what the policy knows about one deployment on one time scale, read from the board's counts.

The policy has its own histograms besides the published ones: ``deployment|0.1767225600|p17`` for first tokens and
``q17`` for attempts cut without one. They differ in three ways. Times are divided by the effect of the prompt's size
(``sizing.py``), so that all prompts share a histogram. The first number is the API's, 0 for answers. The second is the
epoch: the Unix time at which the deployment was found to have recovered from a fault, 0 before. Only the newest epoch
counts as lately, so all replicas forget a past fault at once, while the published leaderboard keeps it.
"""

from collections.abc import Generator, Iterable, Mapping
from functools import lru_cache
from itertools import islice
from math import inf
from sys import intern
from typing import TypeAlias

import msgspec

from gateway.prompt_classes import MeasuredApi, decoded_api, encoded_api
from gateway.steering.histogram import bucket
from gateway.steering.tally import DIGITS, MOST_DEPLOYMENTS, Counts, Sparse

Evidences: TypeAlias = dict[str, "Evidence"]  # by deployment

_FIELDS_A_STEP = 500
_FIELDS_KNOWN = 65_536  # as many as of the other fields


class Evidence(msgspec.Struct):
    """The weighted counts of one deployment. Histograms are by API."""

    n: float = 0.0
    err: float = 0.0
    tok: float = 0.0
    sec: float = 0.0
    gtok: float = 0.0
    gsec: float = 0.0
    ans: float = 0.0
    burst: float = 0.0
    won: float = 0.0
    stall: float = 0.0
    events: dict[MeasuredApi, Sparse] = {}
    censored: dict[MeasuredApi, Sparse] = {}
    epoch: int = 0  # the newest


def event(deployment: str, api: MeasuredApi, epoch: int, ttft_s: float) -> str:
    """Return the field that counts such first tokens; ``ttft_s`` is scaled to the reference size."""
    return _field(deployment, api, epoch, "p", bucket(ttft_s))


def cut(deployment: str, api: MeasuredApi, epoch: int, age_s: float) -> str:
    """Return the field that counts attempts cut at such an age, scaled to the reference size."""
    return _field(deployment, api, epoch, "q", bucket(age_s))


def read_evidence(
    counts: Mapping[str, float], since: Mapping[str, int] | None = None, *, newest: float = inf
) -> Evidences:
    """Return the evidence of each deployment of one model.

    With ``since``, epochs by deployment, older epochs' histograms are ignored. An epoch later than ``newest`` is
    invalid, whoever has written it.
    """
    found: Evidences = {}
    _read(counts.items(), found, since, newest)
    return found


def read_in_steps(
    counts: Mapping[str, float], since: Mapping[str, int] | None = None, *, newest: float = inf
) -> Generator[None, None, Evidences]:
    """Do the same, in steps of less than a millisecond."""
    found: Evidences = {}
    left = iter(counts.items())
    while some := list(islice(left, _FIELDS_A_STEP)):
        _read(some, found, since, newest)
        yield
    return found


def _read(
    counts: Iterable[tuple[str, float]], found: Evidences, since: Mapping[str, int] | None, newest: float
) -> None:
    for field, amount in counts:
        place = _place(field) if 0.0 < amount < inf else None
        if place is None:
            continue
        deployment, name, api, epoch, index = place
        evidence = found.get(deployment)
        if evidence is None:
            if len(found) >= MOST_DEPLOYMENTS:
                continue
            evidence = found[deployment] = Evidence(epoch=0 if since is None else since.get(deployment, 0))
        if api is None:
            setattr(evidence, name, amount)
            continue
        if epoch != evidence.epoch and since is not None:
            if epoch < evidence.epoch or epoch > newest:
                continue
            evidence.events, evidence.censored, evidence.epoch = {}, {}, epoch
        histogram = (evidence.events if name == "p" else evidence.censored).setdefault(api, {})
        histogram[index] = histogram.get(index, 0.0) + amount


def lasting(counts: Mapping[str, float], epochs: Mapping[str, int]) -> tuple[Counts, Counts]:
    """Split ``counts`` into those the policy needs in the long run: those of the newest epochs, and all others."""
    current: Counts = {}
    before: Counts = {}
    for field, amount in counts.items():
        place = _place(field) if 0.0 < amount < inf else None
        if place is None:
            continue
        deployment, name, api, epoch, index = place
        if api is None:
            current[field] = amount
            continue
        key = _field(deployment, api, 0, name, index)
        kept = current if epoch >= epochs.get(deployment, 0) else before
        kept[key] = kept.get(key, 0.0) + amount
    return current, before


@lru_cache(maxsize=_FIELDS_KNOWN)
def _field(deployment: str, api: MeasuredApi, epoch: int, name: str, index: int) -> str:
    return intern(f"{deployment}|{encoded_api(api)}.{epoch}|{name}{index}")


@lru_cache(maxsize=_FIELDS_KNOWN)
def _place(field: str) -> tuple[str, str, MeasuredApi | None, int, int] | None:
    """Parse a field: deployment, name, API (None if it is not a histogram's), epoch and bucket."""
    owner, _, name = field.rpartition("|")
    if not owner:
        return None
    if name in _TOTALS:
        return intern(owner), intern(name), None, 0, 0
    deployment, _, numbers = owner.rpartition("|")
    number, _, epoch = numbers.partition(".")
    index = name[1:]
    is_number = number.isdecimal() and epoch.isdecimal() and index.isdecimal()
    if (
        not is_number
        or name[0] not in "pq"
        or len(number) > DIGITS
        or len(epoch) > _EPOCH_DIGITS
        or len(index) > DIGITS
    ):
        return None
    api = decoded_api(int(number))
    if api is MeasuredApi.UNKNOWN:
        return None
    return intern(deployment), intern(name[0]), api, int(epoch), int(index)


_TOTALS = frozenset({"n", "err", "tok", "sec", "gtok", "gsec", "ans", "burst", "won", "stall"})
_EPOCH_DIGITS = 10
