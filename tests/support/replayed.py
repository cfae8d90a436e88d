"""Fleets whose every draw is known, the ledger that one policy would have made of them, and storing it.

Each call has a draw of every deployment, so any other setting can be replayed exactly.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from math import exp, sqrt
from pathlib import Path
from random import Random
from statistics import fmean
from uuid import UUID

from msgspec import Struct

from gateway.core.attempts import AttemptRecord, Outcome, Role, TokensSource
from gateway.core.calls import CallRecord, Mode, Objective
from gateway.core.ids import new_id
from gateway.ledger import Ledger
from gateway.replay import ReplayedCall, Try
from gateway.replay.rows import CAP_MS
from gateway.replay.variants import ReplaySetting, hedge_delay_ms
from gateway.replay.world import DrawnAttempt, play

RATE_S = 20.0  # seconds between calls
TRUE_DELAYS = 4_000  # calls from which the true delays of hedges are found
_BATCH = 1_000  # calls


class World(Struct, frozen=True, kw_only=True):
    """A fleet."""

    name: str
    difficulty: float = 0.3  # share of the variance of log TTFT that is the call's own, the same everywhere
    deployments: int = 3
    tail: float | None = None  # share of attempts some six times slower; None: drawn for each deployment
    failures: float = 0.01


WORLDS = (
    World(name="shared 30 %"),
    World(name="shared 60 %", difficulty=0.6),
    World(name="failures", failures=0.06),
)


class Drawing:
    """All that a world does, from its seed."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self._random = random = Random(f"{world.name} {seed}")
        self.names = [f"provider{n}/model" for n in range(world.deployments)]
        self._medians_ms = [random.uniform(200, 600) for _ in self.names]
        self._sigmas = [random.uniform(0.2, 0.6) for _ in self.names]
        self._tails = [
            random.choice((0.002, 0.01, 0.03, 0.06)) if world.tail is None else world.tail for _ in self.names
        ]
        self._means_ms = [
            fmean(self._draw(at, random.gauss(0, 1)).ms for _ in range(2000)) for at in range(len(self.names))
        ]

    def calls(self, count: int) -> list[list[DrawnAttempt]]:
        """Draw ``count`` calls: what each deployment would have done, in the order of the policy."""
        return [self._call() for _ in range(count)]

    def _call(self) -> list[DrawnAttempt]:
        shared = self._random.gauss(0, 1)
        drawn = [self._draw(at, shared) for at in range(len(self.names))]
        keys = [self._random.random() for _ in self.names]
        first, second, *rest = sorted(range(len(self.names)), key=keys.__getitem__)
        rest.sort(key=self._means_ms.__getitem__)
        return [drawn[at] for at in (first, second, *rest)]

    def _draw(self, at: int, shared: float) -> DrawnAttempt:
        world, random = self.world, self._random
        name = self.names[at]
        if random.random() < world.failures:
            return DrawnAttempt(name, random.uniform(50, 400), failed=True)
        sigma, share = self._sigmas[at], world.difficulty
        own = random.gauss(0, 1)
        ms = self._medians_ms[at] * exp(sigma * (sqrt(share) * shared + sqrt(1 - share) * own))
        if random.random() < self._tails[at]:
            ms *= 6 * exp(0.5 * random.gauss(0, 1))
        return DrawnAttempt(name, min(ms, CAP_MS))


def ledger(
    drawn: Sequence[Sequence[DrawnAttempt]], audit_share: float, random: Random, width: int = 2
) -> list[ReplayedCall]:
    """Return the rows of the calls raced by ``width``, of which a share is audited."""
    return [_row(number, each, random.random() < audit_share, width) for number, each in enumerate(drawn)]


def _row(number: int, drawn: Sequence[DrawnAttempt], audited: bool, width: int) -> ReplayedCall:
    result = play([0.0] * width, partial(_at, drawn))
    tries, offset = [], 0.0
    for place in result.launched:
        each = drawn[place]
        late = place >= width
        if late:
            offset = (
                max(one.ms for one in drawn[:place] if one.failed) if any(one.failed for one in drawn[:place]) else 0.0
            )
        role = "failover" if late else "primary" if place == 0 else "race"
        lost = place != result.winner
        age = result.ttft_ms - offset
        watched = audited and not late
        overtaken = lost and each.ms > age
        seen = not each.failed and (not lost or watched)
        tries.append(
            Try(
                each.deployment,
                each.deployment.split("/")[0],
                role,
                offset,
                audited=watched,
                token_ms=each.ms if seen else None,
                cut_ms=age if overtaken and not watched else None,
                overtaken_ms=age if overtaken else None,
                failed=each.failed and (not overtaken or watched),
                failed_ms=each.ms if each.failed and (not overtaken or watched) else None,
                won=not lost,
                decode_tps=60.0 if not lost else None,
            )
        )
    ttft = result.ttft_ms if result.winner >= 0 else None
    return ReplayedCall(number * RATE_S, tries, ttft, None if ttft is None else ttft + 2000, 800, 120)


def truth(drawn: Sequence[Sequence[DrawnAttempt]], setting: ReplaySetting, random: Random) -> list[float]:
    """Return the first tokens of all calls under ``setting``, in order."""
    delays = {} if setting.hedged_from is None else _true_delays(drawn, setting.hedged_from)
    found = []
    for call in drawn:
        if setting.budget is None:
            starts = [0.0] * setting.width
        else:
            starts = [0.0, 0.0 if random.random() < setting.raced else delays[call[0].deployment]]
        found.append(play(starts, partial(_at, call)).ttft_ms)
    return sorted(found)


def _true_delays(drawn: Sequence[Sequence[DrawnAttempt]], share: float) -> dict[str, float]:
    seen: dict[str, list[float]] = {}
    for call in drawn[:TRUE_DELAYS]:
        for each in call:
            if not each.failed:
                seen.setdefault(each.deployment, []).append(each.ms)
    return {name: hedge_delay_ms(sorted(ms)[int(share * len(ms))]) for name, ms in seen.items()}


def _at(call: Sequence[DrawnAttempt], place: int) -> DrawnAttempt | None:
    return call[place] if place < len(call) else None


async def store(url: str, spool: Path, calls: Sequence[ReplayedCall], *, model: str, until: datetime) -> None:
    """Store ``calls`` as those of ``model``, the last of them at ``until``; the ledger has its tables.

    Their ids are the same each time, and so is the sample that is drawn by them.
    """
    ledger, random = Ledger(url, spool, "replay"), Random(model)
    for number, call in enumerate(calls, start=1):
        call_id = str(UUID(int=random.getrandbits(128), version=4))
        ledger.call_finished(_record(call, call_id, model, until - timedelta(seconds=RATE_S * (len(calls) - number))))
        if number % _BATCH == 0:
            await ledger.flush()
    await ledger.flush()
    await ledger.close()


def _record(call: ReplayedCall, call_id: str, model: str, at: datetime) -> CallRecord:
    attempts = tuple(_attempt(each, call_id, number, model, at) for number, each in enumerate(call.tries, start=1))
    winner = next((each for each in attempts if each.outcome is Outcome.WON), None)
    return CallRecord(
        id=call_id,
        started_at=at,
        client=None,
        model=model,
        endpoint="chat.completions",
        streamed=True,
        mode=Mode.AUTO,
        objective=Objective.FIRST_TOKEN,
        prompt_class=0,
        tags={},
        replica="replay",
        region=None,
        launched=len(attempts),
        winner_attempt_id=None if winner is None else winner.id,
        status_code=200 if winner is not None else 502,
        error_kind=None if winner is not None else "all_providers_failed",
        ttft_ms=call.ttft_ms,
        total_ms=1_000.0 if call.total_ms is None else call.total_ms,
        overhead_ms=0.5,
        prompt_tokens=call.prompt_tokens,
        completion_tokens=call.answer_tokens,
        tokens_source=TokensSource.REPORTED,
        attempts=attempts,
    )


def _attempt(each: Try, call_id: str, number: int, model: str, at: datetime) -> AttemptRecord:
    outcome = Outcome.SUPERSEDED if each.token_ms is not None else Outcome.LOST
    if each.won:
        outcome = Outcome.WON
    elif each.failed:
        outcome = Outcome.FAILED
    return AttemptRecord(
        id=new_id(),
        call_id=call_id,
        number=number,
        started_at=at + timedelta(milliseconds=each.offset_ms),
        role=Role(each.role),
        provider=each.provider,
        deployment=each.deployment,
        model=model,
        launch_offset_ms=each.offset_ms,
        outcome=outcome,
        audited=each.audited,
        headers_ms=each.failed_ms,
        ttft_ms=each.token_ms,
        token_ms=each.token_ms,
        censored_at_ms=each.cut_ms,
        is_overtaken=each.overtaken_ms is not None,
        overtaken_at_ms=each.overtaken_ms,
        decode_tps=each.decode_tps,
        error_kind="server_error" if each.failed else None,
        cost_usd=6e-4 if each.won else 3e-4,
        cost_low_usd=6e-4 if each.won else 0.0,
        cost_high_usd=6e-4,
        price={"input": 0.6, "output": 0.9},  # 800 and 120 tokens: 0.0006 dollars
    )
