"""The published leaderboard beside the truth: what the providers would have drawn for every call."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from benchmarks.fleet.course import LETTERS_PER_TOKEN, Look, Observation
from benchmarks.fleet.ledger import Entry
from benchmarks.fleet.world import World, delivers
from benchmarks.harness.report import milliseconds, weighted_quantile
from gateway.api.json_body import size_class

_ENVELOPE_BYTES = 110  # of a body, beside its prompt


class Published(msgspec.Struct, frozen=True):
    """A quantile of one deployment as the leaderboard has it, beside the true one."""

    model: str
    provider: str
    events: int
    censored: int
    biased: bool
    quantile: float
    published_ms: float | None
    low_ms: float | None
    high_ms: float | None
    true_ms: float | None

    @property
    def error(self) -> float | None:
        """The relative error."""
        if self.published_ms is None or self.true_ms is None:
            return None
        return self.published_ms / self.true_ms - 1

    @property
    def inside(self) -> bool | None:
        """Whether the truth is in the published interval; None when there is none."""
        if self.low_ms is None or self.high_ms is None or self.true_ms is None:
            return None
        return self.low_ms <= self.true_ms <= self.high_ms


def published(observations: Sequence[Observation], look: Look, world: World) -> list[Published]:
    """Compare the leaderboards with what the providers would have drawn for every call of the model.

    A deployment may be asked for long prompts more or less often than others, so each call's draw counts as often as
    calls of its prompt class were sent there.
    """
    found = []
    for model, rows in look.leaderboards.items():
        calls = [each for each in observations if each.arm == model and each.due_s < look.at_s]
        for row in rows:
            provider = row["deployment"].partition("/")[0]
            weights = _class_weights(look.entries, model, provider, calls, world)
            draws = [(world.draw(provider, each.number, each.due_s), each.number) for each in calls]
            truth = [
                (run.ttft_s, weights.get(_prompt_class(world, number), 0.0)) for run, number in draws if delivers(run)
            ]
            found += [_published(model, provider, row, q, weighted_quantile(truth, q)) for q in (0.50, 0.95)]
    return sorted(found, key=lambda each: (each.model, each.provider, each.quantile))


def _published(model: str, provider: str, row: Mapping[str, Any], q: float, true_s: float | None) -> Published:
    name = f"ttft_p{round(q * 100)}"
    return Published(
        model=model,
        provider=provider,
        events=row["events"],
        censored=row["censored"],
        biased=row["biased"],
        quantile=q,
        published_ms=row[f"{name}_ms"],
        low_ms=row.get(f"{name}_low_ms"),
        high_ms=row.get(f"{name}_high_ms"),
        true_ms=milliseconds(true_s),
    )


def _prompt_class(world: World, number: int) -> int:
    """Return the class that the gateway puts a call's prompt in."""
    return size_class(LETTERS_PER_TOKEN * world.prompt_tokens(number) + _ENVELOPE_BYTES)


def _class_weights(
    entries: Iterable[Entry], model: str, provider: str, calls: Sequence[Observation], world: World
) -> dict[int, float]:
    """Return for each prompt class how often a call of it counts: its share of the attempts over that of the calls."""
    asked = Counter[int]()
    for entry in entries:
        if entry.model == model and entry.provider == provider:
            asked[entry.prompt_class] += entry.attempts
    made = Counter(_prompt_class(world, each.number) for each in calls)
    return {each: asked[each] / made[each] for each in made}
