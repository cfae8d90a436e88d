"""Compares the vectors of deployments declared to be one model, before their answers are mixed in an index.

The declaration may be wrong: another pooling, a shorter vector, vectors that are not normalised. To find such a
difference three fixed texts are sent once to each deployment whose answers may come beside the first deployment's.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from math import fsum, sqrt
from typing import Any

import msgspec
import structlog

from gateway.api.call_context import CallContext
from gateway.fleet import Deployment, Fleet, Model
from gateway.racing import EXTRA_ROLES
from gateway.steering import Launch, Plan
from providers import Request, Sendings, UpstreamError, step_by_step

TEXTS = (
    "The ship left the harbour before sunrise.",
    "Quarterly revenue fell by four percent, mostly in Europe.",
    "def area(radius): return 3.14159 * radius ** 2",
)
LEAST_COSINE = 0.999  # judgement: other batches and hardware differ by less
NORM_SHARE = 0.01  # judgement: likewise, of the first vector's length
AGAIN_S = 60.0  # after a comparison that failed
_FIELDS = {
    "input": msgspec.Raw(msgspec.json.encode(TEXTS)),
    "encoding_format": msgspec.Raw(b'"float"'),
}


class _Embedded(msgspec.Struct):
    embedding: list[float]
    index: int = 0


class _Embeddings(msgspec.Struct):
    data: list[_Embedded]


_decoder = msgspec.json.Decoder(_Embeddings)


def difference(first: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> str | None:
    """Return why the vectors of the same texts are not those of one model; None if no difference shows."""
    for u, v in zip(first, other, strict=True):
        if len(u) != len(v):
            return f"its vectors have {len(v)} dimensions, not {len(u)}"
        norm, other_norm = (sqrt(fsum(x * x for x in vector)) for vector in (u, v))
        if abs(other_norm - norm) > NORM_SHARE * norm:
            return f"its vectors have the length {other_norm:.4g}, not {norm:.4g}"
        cosine = fsum(x * y for x, y in zip(u, v, strict=True)) / (norm * other_norm) if norm and other_norm else 0.0
        if cosine < LEAST_COSINE:
            return f"its vectors point elsewhere (cosine {cosine:.4f})"
    return None


class VectorComparisons:
    """The results of comparing one fleet's deployments. ``start`` runs a comparison in the background."""

    def __init__(self, start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]) -> None:
        self._start = start
        self._fleet: Fleet | None = None  # a reload may have corrected a wrong declaration
        self._known: dict[tuple[str, str], str | None] = {}  # first and other deployment → the difference
        self._not_before: dict[tuple[str, str], float] = {}  # comparisons that run, have failed, or were not permitted

    def difference(self, fleet: Fleet, first: Deployment | None, other: Deployment) -> str | None:
        """Return how the vectors of ``other`` differ from those of ``first``; None: not, or not yet known."""
        return None if first is None or fleet is not self._fleet else self._known.get((first.name, other.name))

    def compare(self, context: CallContext, fleet: Fleet, model: Model, first: Deployment, plan: Plan) -> None:
        """Compare those deployments of ``plan`` that are not compared yet, within the model's budget."""
        if fleet is not context.fleet:  # a call from before a reload
            return
        if first.name not in model.deployments or model.tenant is not None:
            return
        now = context.services.clock()
        if fleet is not self._fleet:
            self._fleet = fleet
            self._known.clear()
            self._not_before.clear()
        if not any(each.role in EXTRA_ROLES for each in plan.launches):
            return
        pairs = [(first.name, each.deployment) for each in plan.launches if each.deployment != first.name]
        due = [pair for pair in pairs if pair not in self._known and self._not_before.get(pair, now) <= now]
        for pair in due:
            self._not_before[pair] = now + AGAIN_S
            draw = partial(context.steering.draw_extra, model.name, race=model.race, payer=model.payer)
            if all(draw(Launch.to_compare(name), cost_usd=plan.cost_usd.get(name)) is None for name in pair):
                fleet.hold()
                self._start(self._compare(fleet, model, pair)).add_done_callback(fleet.let_go)

    async def _compare(self, fleet: Fleet, model: Model, pair: tuple[str, str]) -> None:
        first, other = (model.deployments[name] for name in pair)
        try:
            vectors, other_vectors = await _embedded(first), await _embedded(other)
        except (UpstreamError, TimeoutError, msgspec.DecodeError, ValueError):
            return  # a later call tries again
        if fleet is not self._fleet:
            return
        differs = self._known[pair] = difference(vectors, other_vectors)
        if differs is not None:
            # Event vectors.differ: A deployment makes other vectors than the `first` of its model, though both are
            # declared to be one (`reason`). It gets no embeddings until a reload.
            # Do: Correct its model or `same_as`, or leave it out. What it embedded before does not match the rest.
            log = structlog.get_logger()
            log.warning("vectors.differ", model=model.name, deployment=other.name, first=first.name, reason=differs)


async def _embedded(deployment: Deployment) -> list[list[float]]:
    """Return the vectors of the three texts.

    Raises:
        UpstreamError, TimeoutError, msgspec.DecodeError, ValueError: the deployment returned no such vectors.

    """
    request = Request(
        model=deployment.model,
        fields=_FIELDS,
        own_headers=deployment.extra_headers,
        extra_body=deployment.extra_body,
        connect_timeout_s=deployment.clocks.connect_s,
        sendings=Sendings(),
    )
    async with asyncio.timeout(deployment.clocks.ttft_s):
        answer = await step_by_step(lambda: deployment.upstream.send("embeddings", request), request.sendings)
    vectors = [each.embedding for each in sorted(_decoder.decode(answer.body).data, key=lambda each: each.index)]
    if len(vectors) != len(TEXTS):
        raise ValueError(f"{len(vectors)} vectors for {len(TEXTS)} texts")
    return vectors
