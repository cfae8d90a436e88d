"""Predicts the number of tokens of the next answer, by the kind of call.

A model's calls differ: a label has 5 tokens, a report 4,000, and the length decides which deployment finishes first.
Answers are averaged in cells from coarse to fine: API, tools or JSON, and ``max_tokens``; the client; its tags; the
prompt's size. Each cell is shrunk towards the next coarser cell, the coarsest towards the mean of all the model's
answers. Replicas share that mean, but no cells.
"""

from collections import OrderedDict
from functools import lru_cache
from math import exp2, log, log2
from typing import TypeAlias

import msgspec

from gateway.core.calls import CallKind
from gateway.steering.constants import (
    FIRST_EDGE_S,
    KNEE_DOUBT,
    KNEE_HALF_LIFE_S,
    KNEE_PRIOR_TOKENS,
    LENGTH_CELLS_KEPT,
    LENGTH_MEMORY,
    LENGTH_PRIOR,
    LENGTH_STEPS_PER_OCTAVE,
    SIZE_NOISE,
    SIZE_REFERENCE_TOKENS,
    TAG_KEYS_KNOWN,
    TAG_VALUES_KNOWN,
    TAGS_FORGOTTEN_AFTER,
)

_Key: TypeAlias = tuple[object, ...]


class Lengths:
    """The lengths of answers by model and kind of call."""

    def __init__(self) -> None:
        self._cells: OrderedDict[_Key, _Cell] = OrderedDict()  # cells, the least recently updated first
        self._tags: OrderedDict[str, _Tags] = OrderedDict()  # by model, likewise

    def expected(self, model: str, kind: CallKind, answer_tokens: float) -> float:
        """Return the expected output tokens of a call of this ``kind``, in steps of a quarter octave.

        ``answer_tokens`` is the mean of all the model's answers. The result is a mean too, as times are predicted from
        it, and at most the request's limit. Cells are combined by logarithms, since kinds differ by orders of
        magnitude. The steps allow a plan to be reused for the next call.
        """
        expected_log2 = log2(answer_tokens)
        for key in self._keys(model, kind):
            cell = self._cells.get(key)
            if cell is not None:
                expected_log2 += (cell.mean_log2 - expected_log2) * cell.weight
        if kind.max_tokens is not None:
            expected_log2 = min(expected_log2, log2(max(1, kind.max_tokens)))
        return float(2.0 ** (round(LENGTH_STEPS_PER_OCTAVE * expected_log2) / LENGTH_STEPS_PER_OCTAVE))

    def learn(self, model: str, kind: CallKind, tokens: int) -> None:
        """Learn from an answer with so many output tokens. One cut at ``max_tokens`` has the length of such answers."""
        cells = self._cells
        if kind.tags:
            tags = self._tags.get(model)
            if tags is None:
                tags = self._tags[model] = _Tags()
                if len(self._tags) > LENGTH_CELLS_KEPT:
                    self._tags.popitem(last=False)
            tags.see(kind)
        counted = max(1.0, tokens)
        for key in self._keys(model, kind):
            cell = cells.get(key)
            if cell is None:
                cell = cells[key] = _Cell()
                if len(cells) > LENGTH_CELLS_KEPT:
                    cells.popitem(last=False)
            else:
                cells.move_to_end(key)
            cell.learn(counted)

    def _keys(self, model: str, kind: CallKind) -> tuple[_Key, ...]:
        """Return the cells of ``kind``, from coarse to fine."""
        shape = (model, kind.endpoint, kind.structured, (kind.max_tokens or 0).bit_length())
        client = (*shape, kind.client)
        size = kind.prompt_tokens.bit_length()
        if kind.tags and (tags := self._tags.get(model)) is not None and (telling := tags.telling(kind)):
            tagged = (*client, telling)
            return shape, client, tagged, (*tagged, size)
        return shape, client, (*client, size)


class _Cell(msgspec.Struct, gc=False):
    """The mean number of tokens in answers; of many, about the last LENGTH_MEMORY."""

    answers: float = 0.0
    mean: float = 0.0
    mean_log2: float = 0.0
    weight: float = 0.0  # 0 to 1, relative to the coarser cell

    def learn(self, tokens: float) -> None:
        answers = self.answers
        if answers < LENGTH_MEMORY:
            answers = self.answers = answers + 1.0
            self.weight = answers / (answers + LENGTH_PRIOR)
        mean = self.mean = self.mean + (tokens - self.mean) / answers
        self.mean_log2 = log2(mean)


class _Tags:
    """Finds a model's tags that predict lengths: those with few values, unlike ids of users or traces."""

    def __init__(self) -> None:
        self._values: dict[str, set[str]] = {}
        self._calls = 0

    def see(self, kind: CallKind) -> None:
        self._calls += 1
        if self._calls > TAGS_FORGOTTEN_AFTER:
            self._values.clear()
            self._calls = 0
        for name, value in kind.tags.items():
            values = self._values.get(name)
            if values is not None:
                if len(values) <= TAG_VALUES_KNOWN:
                    values.add(value)
            elif len(self._values) < TAG_KEYS_KNOWN:
                self._values[name] = {value}

    def telling(self, kind: CallKind) -> tuple[tuple[str, str], ...]:
        values = self._values
        tags = [tag for tag in kind.tags.items() if 0 < len(values.get(tag[0], ())) <= TAG_VALUES_KNOWN]
        return tuple(sorted(tags)) if len(tags) > 1 else tuple(tags)


# Sizing: how a deployment's time to first token grows with the prompt, so that all prompts share one histogram. The
# prompt is read before the first token is made: ttft = base x (1 + tokens / knee). The knee is the size at which
# reading takes as long as everything else. It is fitted to the first tokens of the last hour, by half octaves of
# size.

_LEAST_TOKENS, _SIZES = 64, 28  # half octaves, to a million tokens
_KNEES = tuple(125.0 * 2.0**octave for octave in range(14))  # to a million tokens: there the size has no effect
_CLASS_TOKENS = (500, 3_000, 16_000)  # the typical size of each class


@lru_cache(maxsize=4_096)  # called about four times per call
def size_of(tokens: int | None, size_class: int = 0) -> int:
    """Return the half octave of a prompt with ``tokens``; the typical one of its class if unknown."""
    if tokens is None:
        tokens = _CLASS_TOKENS[min(size_class, len(_CLASS_TOKENS) - 1)]
    if tokens <= _LEAST_TOKENS:
        return 0
    return min(_SIZES - 1, round(2 * log2(tokens / _LEAST_TOKENS)))


def tokens_of(size: int) -> float:
    """Return the number of tokens in the middle of a half octave."""
    return float(_LEAST_TOKENS * exp2(size / 2))


class PromptSizeEffect:
    """The effect of prompt size at one deployment."""

    __slots__ = ("_at_s", "_by_size", "_stale", "knee_tokens")

    def __init__(self) -> None:
        self.knee_tokens = KNEE_PRIOR_TOKENS
        self._by_size: dict[int, _Mean] = {}
        self._at_s = 0.0
        self._stale = False

    def factor(self, size: int) -> float:
        """Return the factor of this prompt size on time to first token, relative to the reference size."""
        return (1 + tokens_of(size) / self.knee_tokens) / (1 + SIZE_REFERENCE_TOKENS / self.knee_tokens)

    def seen(self, size: int, ttft_s: float) -> None:
        """Add a first token."""
        mean = self._by_size.get(size)
        if mean is None:
            mean = self._by_size[size] = _Mean()
        mean.n += 1.0
        mean.sum += log(max(ttft_s, FIRST_EDGE_S))
        self._stale = True

    def fit(self, now_s: float) -> None:
        """Fit the knee: least squares of ln(ttft), with a penalty for its distance from the usual one."""
        if not self._stale:
            return
        self._stale = False
        keep = exp2((self._at_s - now_s) / KNEE_HALF_LIFE_S) if self._at_s else 1.0
        self._at_s = now_s
        for mean in self._by_size.values():
            mean.n *= keep
            mean.sum *= keep
        losses = [self._loss(knee) for knee in _KNEES]
        best = losses.index(min(losses))
        self.knee_tokens = _KNEES[best] * exp2(_vertex(losses, best))

    def _loss(self, knee_tokens: float) -> float:
        n = xs = xx = 0.0
        for size, mean in self._by_size.items():
            missed = mean.sum / mean.n - log(1 + tokens_of(size) / knee_tokens) if mean.n else 0.0
            n += mean.n
            xs += mean.n * missed
            xx += mean.n * missed * missed
        unusual = log(knee_tokens / KNEE_PRIOR_TOKENS) / KNEE_DOUBT
        return (xx - xs * xs / n) / SIZE_NOISE**2 + unusual * unusual if n else unusual * unusual


def _vertex(losses: list[float], best: int) -> float:
    """Return the minimum of the parabola through the least loss and its neighbours, in steps from the least."""
    if not 0 < best < len(losses) - 1:
        return 0.0
    below, here, above = losses[best - 1 : best + 2]
    bend = below - 2 * here + above
    return 0.5 * (below - above) / bend if bend > 0 else 0.0


class _Mean(msgspec.Struct):
    n: float = 0.0
    sum: float = 0.0  # of ln(seconds)
