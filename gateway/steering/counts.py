"""The board's counts: flat fields that can be added, and the tally of a deployment read from them.

A slot maps fields to numbers, in memory as in a Redis hash, so that replicas merge by adding.
``deployment|class|e17`` counts first tokens by bucket of the attempt's TTFT, ``deployment|class|c17`` cut attempts by
bucket of their age. For the published figures some attempts are also counted separately, and with an ``s`` before the
name (``se17``, ``sae17``, ``|saud``) attempts with ``win_on: sentence`` once more:

- ``l17``: first tokens of attempts launched late (hedges, failovers);
- ``g17``: cut attempts that were not overtaken; ``ae17`` and ``ac17``: audited attempts that were overtaken, a random
  sample; ``deployment|over``: all overtaken attempts, ``|aud``: all audited attempts, failed ones included;
- ``|n``, ``|err``: attempts that ended with a first token or an error, with an error; ``|lim``: 429s; ``|won``;
- ``|down``: errors of ``|err`` while the deployment was broken or out, which say nothing of the time after that;
- ``|tok``, ``|sec``: decoding; ``|gtok``, ``|gsec``: decoding with estimated tokens, never published; ``|etok``,
  ``|esec``: end to end; ``|ans``, ``|burst``: answers with a measurable speed, answers out of a buffer;
- ``|stall``: seconds of unusual silence in winners' answers, the longest of each;
- ``|judged``, ``|flawed``: winners' complete answers, and such answers with a flaw;
- for the whole model ``req``, ``out``: answered calls, and their tokens.
"""

from collections.abc import Generator, Iterable, Mapping
from functools import cache, lru_cache
from itertools import islice, pairwise
from math import inf, log, log2
from statistics import NormalDist
from sys import intern
from typing import TypeAlias

import msgspec

from gateway.core.prompt_classes import (
    Effort,
    Measured,
    MeasuredApi,
    PromptClass,
    Spoken,
    decoded_class,
    decoded_measured,
    encoded_class,
    encoded_measured,
)
from gateway.steering.constants import BUCKETS, BUCKETS_PER_OCTAVE, FIRST_EDGE_S

# Log-spaced latency buckets: eight per octave from 10 ms to 164 s.

ROUNDING = 1e-9  # of a bucket: keeps an exact edge in its own bucket


def bucket(seconds: float) -> int:
    """Return the bucket of ``seconds``; values beyond either end belong to the last bucket there."""
    if seconds <= FIRST_EDGE_S:
        return 0
    return min(BUCKETS - 1, int(BUCKETS_PER_OCTAVE * log2(seconds / FIRST_EDGE_S) + ROUNDING))


def edge_s(index: float) -> float:
    """Return the lower edge of bucket ``index``; a fraction is interpolated geometrically."""
    return float(FIRST_EDGE_S * 2 ** (index / BUCKETS_PER_OCTAVE))


def mid_s(index: int) -> float:
    """Return the geometric middle of bucket ``index``, in seconds."""
    return edge_s(index + 0.5)


@cache
def lognormal_masses(median_s: float, sigma: float) -> tuple[float, ...]:
    """Return the share of a lognormal distribution in each bucket; the tails are left out."""
    normal = NormalDist(log(median_s), sigma)
    below = [normal.cdf(log(edge_s(index))) for index in range(BUCKETS + 1)]
    within = below[-1] - below[0]
    return tuple((after - before) / within for before, after in pairwise(below))


Counts: TypeAlias = dict[str, float]
Sparse: TypeAlias = dict[int, float]  # bucket -> count
Histograms: TypeAlias = dict[PromptClass, Sparse]

REQUESTS, OUTPUT_TOKENS = "req", "out"

MOST_DEPLOYMENTS = 256  # of one model: each is an estimate per second
DIGITS = 3  # of a prompt class, and of a bucket
_FIELDS_KNOWN = 65_536  # parsed fields that are cached: ten busy models with 20 deployments have 40,000


class Fields(msgspec.Struct, frozen=True, gc=False):
    """The names of one deployment's counts: made once, as each sample has up to ten of them."""

    n: str
    err: str
    lim: str
    won: str
    tok: str
    sec: str
    gtok: str
    gsec: str
    etok: str
    esec: str
    ans: str
    burst: str
    over: str
    aud: str
    stall: str
    judged: str
    flawed: str


@lru_cache(maxsize=_FIELDS_KNOWN)
def fields(deployment: str) -> Fields:
    """Return the names of a deployment's counts that are not in histograms."""
    return Fields(*(intern(f"{deployment}|{name}") for name in Fields.__struct_fields__))


def event_field(deployment: str, prompt_class: PromptClass, ttft_s: float, *, kind: str = "e") -> str:
    """Return the field that counts such first tokens; ``kind`` is ``e``, ``l`` or ``ae``."""
    return _histogram_field(deployment, prompt_class, kind, bucket(ttft_s))


def censored_field(deployment: str, prompt_class: PromptClass, age_s: float, *, kind: str = "c") -> str:
    """Return the field that counts attempts cut at such an age; ``kind`` is ``c``, ``g`` or ``ac``."""
    return _histogram_field(deployment, prompt_class, kind, bucket(age_s))


def spoken_field(field: str) -> str | None:
    """Return the field that counts the same of attempts with ``win_on: sentence``; None if nothing does."""
    owner, _, name = field.rpartition("|")
    return intern(f"{owner}|{_SPOKEN}{name}") if name in _OVERTAKEN or name.rstrip(_DIGITS) in _HISTOGRAMS else None


@lru_cache(maxsize=_FIELDS_KNOWN)
def _histogram_field(deployment: str, prompt_class: PromptClass, kind: str, index: int) -> str:
    return intern(f"{deployment}|{encoded_class(prompt_class)}|{kind}{index}")


def add_counts(into: Counts, more: Mapping[str, float]) -> None:
    """Add ``more`` to ``into``. Field names are interned, as twenty slots share them."""
    for field, amount in more.items():
        counts_before = into.get(field)
        if counts_before is None:
            into[intern(field)] = amount
        else:
            into[field] = counts_before + amount


def add_weighted(into: Counts, more: Mapping[str, float], weight: float) -> None:
    """Add ``weight`` times ``more`` to ``into``."""
    for field, amount in more.items():
        into[field] = into.get(field, 0.0) + weight * amount


class Tally(msgspec.Struct):
    """The counts of one deployment, possibly weighted. Histograms are by prompt class."""

    n: float = 0.0
    err: float = 0.0
    lim: float = 0.0
    won: float = 0.0
    tok: float = 0.0
    sec: float = 0.0
    gtok: float = 0.0
    gsec: float = 0.0
    etok: float = 0.0
    esec: float = 0.0
    ans: float = 0.0
    burst: float = 0.0
    over: float = 0.0
    aud: float = 0.0
    stall: float = 0.0
    judged: float = 0.0
    flawed: float = 0.0
    events: Histograms = {}
    censored: Histograms = {}
    late_events: Histograms = {}
    fair_censored: Histograms = {}
    audited_events: Histograms = {}
    audited_censored: Histograms = {}
    spoken: "Tally | None" = None  # its attempts with win_on: sentence: histograms, over and aud


def read_tallies(counts: Mapping[str, float]) -> dict[str, Tally]:
    """Read the tallies of one model's deployments. Fields unknown to this version are ignored.

    So are impossible ones: counts not above 0 (rounding may leave a trace of what was subtracted), and more
    deployments than a model can have.
    """
    tallies: dict[str, Tally] = {}
    for field, amount in counts.items():
        place = _place(field) if 0.0 < amount < inf else None
        if place is None:
            continue
        deployment, is_spoken, name, prompt_class, index = place
        tally = tallies.get(deployment)
        if tally is None:
            if len(tallies) >= MOST_DEPLOYMENTS:
                continue
            tally = tallies[deployment] = Tally()
        if is_spoken:
            tally.spoken = tally = tally.spoken or Tally()
        if prompt_class is None:
            setattr(tally, name, amount)
            continue
        histograms: Histograms = getattr(tally, name)
        histogram = histograms.get(prompt_class)
        if histogram is None:
            histogram = histograms[prompt_class] = {}
        histogram[index] = amount
    return tallies


def merged(histograms: Iterable[Sparse]) -> Sparse:
    """Return the sum of histograms."""
    total: Sparse = {}
    for histogram in histograms:
        for index, amount in histogram.items():
            total[index] = total.get(index, 0.0) + amount
    return total


def unspoken(every: Histograms, spoken: Histograms) -> Histograms:
    """Return what of ``every`` is not among ``spoken``."""
    return {
        prompt_class: {
            index: more
            for index, amount in histogram.items()
            if (more := amount - spoken.get(prompt_class, _NOTHING_SEEN).get(index, 0.0)) > 0.0
        }
        for prompt_class, histogram in every.items()
    }


_NOTHING_SEEN: Sparse = {}


@lru_cache(maxsize=_FIELDS_KNOWN)
def _place(field: str) -> tuple[str, bool, str, PromptClass | None, int] | None:
    """Parse a field: deployment, whether it is of spoken attempts, name in the tally.

    Of a histogram also the prompt class and the bucket.
    """
    owner, _, name = field.rpartition("|")
    if not owner:
        return None
    if name in _TOTALS:
        return owner, False, name, None, 0
    own = name.removeprefix(_SPOKEN)
    if own in _OVERTAKEN:
        return owner, True, own, None, 0
    kind, index = own.rstrip(_DIGITS), own.lstrip(_KINDS)
    deployment, _, number = owner.rpartition("|")
    is_number = index.isdecimal() and number.isdecimal() and len(index) <= DIGITS and len(number) <= DIGITS
    if kind not in _HISTOGRAMS or not is_number:
        return None
    prompt_class = decoded_class(int(number))
    if prompt_class.api is MeasuredApi.UNKNOWN:
        return None
    return intern(deployment), own != name, _HISTOGRAMS[kind], prompt_class, int(index)


_TOTALS = frozenset(Fields.__struct_fields__)
_OVERTAKEN = frozenset({"over", "aud"})
_SPOKEN = "s"
_HISTOGRAMS = {
    "e": "events",
    "c": "censored",
    "l": "late_events",
    "g": "fair_censored",
    "ae": "audited_events",
    "ac": "audited_censored",
}
_KINDS, _DIGITS = "aeclg", "0123456789"


# Evidence: what the policy knows about one deployment on one time scale, read from the board's counts. The policy has
# its own histograms besides the published ones: ``deployment|0|p17`` for first tokens and ``q17`` for attempts cut
# without one. They differ in two ways. Times are divided by the effect of the prompt's size (``prediction.py``), so
# that all prompts share a histogram. The number is the API's, 0 for answers; 100 and 200 for those with an effort,
# 300 to 500 for those that a voice speaks, timed to their first clauses.
# ``deployment|1|ended`` and ``|failed`` count what of ``|n`` and ``|err`` is of an API other than answers, so that a
# model without embeddings is not taken for a model that fails. Versions that do not know these fields ignore them.

Evidences: TypeAlias = dict[str, "Evidence"]  # by deployment

_FIELDS_A_STEP = 500


class Evidence(msgspec.Struct):
    """The weighted counts of one deployment. Histograms are by API, effort and voice."""

    n: float = 0.0
    err: float = 0.0
    down: float = 0.0
    tok: float = 0.0
    sec: float = 0.0
    gtok: float = 0.0
    gsec: float = 0.0
    ans: float = 0.0
    burst: float = 0.0
    won: float = 0.0
    stall: float = 0.0
    events: dict[Measured, Sparse] = {}
    censored: dict[Measured, Sparse] = {}
    ended: dict[MeasuredApi, float] = {}  # the part of ``n`` that is of other APIs than answers
    failed: dict[MeasuredApi, float] = {}  # the same part of ``err``

    def attempts(self, measured: Measured) -> tuple[float, float]:
        """Return how many attempts for an API have ended, and how many of these failed, without ``down``.

        For answers at any effort. Without ``down``, because failed probes would otherwise keep a deployment from its
        calls for minutes after the deployment has recovered.
        """
        if isinstance(measured, MeasuredApi) and measured is not MeasuredApi.ANSWERS:
            return self.ended.get(measured, 0.0), self.failed.get(measured, 0.0)
        n, err = self.n - self.down, self.err - self.down
        return max(0.0, n - sum(self.ended.values())), max(0.0, err - sum(self.failed.values()))


def event(deployment: str, measured: Measured, ttft_s: float) -> str:
    """Return the field that counts such first tokens; ``ttft_s`` is scaled to the reference size."""
    return _field(deployment, measured, "p", bucket(ttft_s))


def cut(deployment: str, measured: Measured, age_s: float) -> str:
    """Return the field that counts attempts cut at such an age, scaled to the reference size."""
    return _field(deployment, measured, "q", bucket(age_s))


def of_api(deployment: str, api: MeasuredApi, counts: Mapping[str, float], *, while_down: bool = False) -> Counts:
    """Return the fields that tell ``counts`` of one attempt's end from counts of answers; none for an answer.

    ``while_down``: the attempt failed at a deployment that was broken or out.
    """
    names = fields(deployment)
    if names.n not in counts:
        return {}
    if while_down:
        return {f"{deployment}|down": counts[names.err]}
    if api is MeasuredApi.ANSWERS:
        return {}
    owner = f"{deployment}|{encoded_measured(api)}"
    failed = {f"{owner}|failed": counts[names.err]} if names.err in counts else {}
    return {f"{owner}|ended": counts[names.n], **failed}


def read_evidence(counts: Mapping[str, float]) -> Evidences:
    """Return the evidence of each deployment of one model."""
    evidences: Evidences = {}
    _read(counts.items(), evidences)
    return evidences


def read_in_steps(counts: Mapping[str, float]) -> Generator[None, None, Evidences]:
    """Do the same, in steps of less than a millisecond."""
    evidences: Evidences = {}
    left = iter(counts.items())
    while some := list(islice(left, _FIELDS_A_STEP)):
        _read(some, evidences)
        yield
    return evidences


def _read(counts: Iterable[tuple[str, float]], evidences: Evidences) -> None:
    for field, amount in counts:
        place = _evidence_place(field) if 0.0 < amount < inf else None
        if place is None:
            continue
        deployment, name, measured, index = place
        evidence = evidences.get(deployment)
        if evidence is None:
            if len(evidences) >= MOST_DEPLOYMENTS:
                continue
            evidence = evidences[deployment] = Evidence()
        if measured is None:
            setattr(evidence, name, amount)
        elif name in _OF_API and isinstance(measured, MeasuredApi):
            (evidence.ended if name == "ended" else evidence.failed)[measured] = amount
        else:
            histogram = (evidence.events if name == "p" else evidence.censored).setdefault(measured, {})
            histogram[index] = histogram.get(index, 0.0) + amount


def lasting(counts: Mapping[str, float]) -> Counts:
    """Return those of ``counts`` that the policy needs in the long run."""
    return {field: amount for field, amount in counts.items() if 0.0 < amount < inf and _evidence_place(field)}


@lru_cache(maxsize=_FIELDS_KNOWN)
def _field(deployment: str, measured: Measured, name: str, index: int) -> str:
    return intern(f"{deployment}|{encoded_measured(measured)}|{name}{index}")


@lru_cache(maxsize=_FIELDS_KNOWN)
def _evidence_place(field: str) -> tuple[str, str, Measured | None, int] | None:
    """Parse a field: deployment, name, API or effort (None if it is not a histogram's) and bucket."""
    owner, _, name = field.rpartition("|")
    if not owner:
        return None
    if name in _EVIDENCE_TOTALS:
        return intern(owner), intern(name), None, 0
    deployment, _, number = owner.rpartition("|")
    kind, index = (name, "0") if name in _OF_API else (name[:1], name[1:])
    is_number = number.isdecimal() and index.isdecimal()
    if kind not in _KINDS_OF_API or not is_number or len(number) > DIGITS or len(index) > DIGITS:
        return None
    measured = decoded_measured(int(number))
    if measured is MeasuredApi.UNKNOWN or (kind in _OF_API and measured in _ANSWERS):
        return None
    return intern(deployment), intern(kind), measured, int(index)


_OF_API = frozenset({"ended", "failed"})
_ANSWERS = frozenset({MeasuredApi.ANSWERS, *Effort, *Spoken})
_KINDS_OF_API = frozenset({"p", "q", *_OF_API})
_EVIDENCE_TOTALS = frozenset({"n", "err", "down", "tok", "sec", "gtok", "gsec", "ans", "burst", "won", "stall"})
