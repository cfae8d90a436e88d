"""Predicts the number of tokens of the next answer, by the kind of call.

A model's calls differ: a label has 5 tokens, a report 4,000, and that decides which deployment finishes first. Answers
are averaged in cells from coarse to fine: API, tools or JSON, and ``max_tokens``; the client; its tags; the prompt's
size. Each cell is shrunk towards the next coarser one, the coarsest towards the mean of all the model's answers, which
replicas share. The cells belong to this replica.
"""

from collections import OrderedDict
from math import log2
from typing import TypeAlias

import msgspec

from gateway.calls import Kind
from gateway.steering.constants import (
    LENGTH_CELLS_KEPT,
    LENGTH_MEMORY,
    LENGTH_PRIOR,
    LENGTH_STEPS_PER_OCTAVE,
    TAG_KEYS_KNOWN,
    TAG_VALUES_KNOWN,
    TAGS_FORGOTTEN_AFTER,
)

_Key: TypeAlias = tuple[object, ...]


class Lengths:
    """The lengths of answers by model and kind of call."""

    def __init__(self) -> None:
        self._cells: OrderedDict[_Key, _Cell] = OrderedDict()  # the least recently updated first
        self._tags: OrderedDict[str, _Tags] = OrderedDict()  # by model, likewise

    def expected(self, model: str, kind: Kind, answer_tokens: float) -> float:
        """Return the expected output tokens of a call of this ``kind``, in steps of a quarter octave.

        ``answer_tokens`` is the mean of all the model's answers. The result is a mean too, as it predicts times, and at
        most the request's limit. Cells are combined by logarithms, since kinds differ by orders of magnitude. The steps
        allow a plan to be reused for the next call.
        """
        expected_log2 = log2(answer_tokens)
        for key in self._keys(model, kind):
            cell = self._cells.get(key)
            if cell is not None:
                expected_log2 += (cell.mean_log2 - expected_log2) * cell.weight
        if kind.max_tokens is not None:
            expected_log2 = min(expected_log2, log2(max(1, kind.max_tokens)))
        return float(2.0 ** (round(LENGTH_STEPS_PER_OCTAVE * expected_log2) / LENGTH_STEPS_PER_OCTAVE))

    def learn(self, model: str, kind: Kind, tokens: int) -> None:
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

    def _keys(self, model: str, kind: Kind) -> tuple[_Key, ...]:
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
    """Finds the tags of a model that distinguish kinds: those with few values. Ids of users or traces are useless."""

    def __init__(self) -> None:
        self._values: dict[str, set[str]] = {}
        self._calls = 0

    def see(self, kind: Kind) -> None:
        self._calls += 1
        if self._calls > TAGS_FORGOTTEN_AFTER:
            self._values.clear()
            self._calls = 0
        for name, value in kind.tags.items():
            known = self._values.get(name)
            if known is not None:
                if len(known) <= TAG_VALUES_KNOWN:
                    known.add(value)
            elif len(self._values) < TAG_KEYS_KNOWN:
                self._values[name] = {value}

    def telling(self, kind: Kind) -> tuple[tuple[str, str], ...]:
        values = self._values
        found = [tag for tag in kind.tags.items() if 0 < len(values.get(tag[0], ())) <= TAG_VALUES_KNOWN]
        return tuple(sorted(found)) if len(found) > 1 else tuple(found)
