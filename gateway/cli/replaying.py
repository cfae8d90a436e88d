"""Reads the ledger and replays it: for ``holeshot replay``, and as a child process for a gateway's page.

The child reads a request on standard input and writes the result to standard output, both as JSON, so that the
gateway's event loop only waits.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import msgspec

from gateway.ledger import MOST_CALLS, LedgerError, models, raced_calls
from gateway.replay import BUDGETS, Replayed, ReplayedCall, published, replay, settings
from gateway.settings import nearest
from providers import encoded

_GENTLE = 10  # niceness of the child; at 15 it would hardly run beside a busy gateway, and time out
_LEAST_S = 60.0
_SEED = 1


class ReplayError(Exception):
    """The ledger has no calls that match the request; the message says why."""


class ReplayRequest(msgspec.Struct, frozen=True):
    """The calls and settings to replay. ``model`` None: all models, or only the one with most calls (``busiest``)."""

    url: str
    window: str
    window_s: float
    model: str | None = None
    without: tuple[str, ...] = ()
    budgets: tuple[float, ...] = BUDGETS
    most: int = MOST_CALLS
    busiest: bool = False


class ReplayedModel(msgspec.Struct, frozen=True):
    """The result for one model."""

    model: str
    calls: int  # the model's calls in the ledger
    replayed: Replayed


OnProgress = Callable[[str, str, float | None], None]  # model, description of the step, and its finished share


def replay_ledger(
    request: ReplayRequest, on_progress: OnProgress = lambda *_: None
) -> tuple[list[str], list[ReplayedModel]]:
    """Return the models of the ledger, the busiest first, and the results for the requested models.

    Raises:
        LedgerError: the ledger cannot be read.
        ReplayError: there are no calls, or no calls of this model or provider.

    """
    since = datetime.now(UTC) - timedelta(seconds=request.window_s)
    known = asyncio.run(models(request.url, since))
    if request.model is not None and known and request.model not in known:
        raise ReplayError(f"no calls of model {request.model!r} in the last {request.window}; {_near(request, known)}")
    if not known:
        raise ReplayError(f"the ledger has no calls of the last {request.window} that could be raced")
    wanted = list(known) if request.model is None else [request.model]
    if request.busiest:
        wanted = wanted[:1]
    return list(known), [
        ReplayedModel(name, known[name], _replayed(request, name, known[name], since, on_progress)) for name in wanted
    ]


def _near(request: ReplayRequest, known: Sequence[str] | dict[str, int]) -> str:
    return nearest(str(request.model), tuple(known))


def _replayed(request: ReplayRequest, model: str, count: int, since: datetime, on_progress: OnProgress) -> Replayed:
    calls = asyncio.run(
        raced_calls(
            request.url,
            model,
            since,
            count=count,
            most=request.most,
            progress=lambda rows: on_progress(model, f"{rows:,} rows read", None),
        )
    )
    providers = sorted({each.provider for call in calls for each in call.tries})
    for name in request.without:
        if name not in providers:
            raise ReplayError(f"no attempt of {model!r} ran at provider {name!r}; {nearest(name, providers)}")
    return replay(
        calls,
        settings(request.budgets),
        Random(_SEED),  # noqa: S311 - no secrets; the same rows give the same figures
        window_s=_lasted_s(calls, request.window_s),
        without=request.without,
        progress=lambda share: on_progress(model, "replaying", share),
    )


def _lasted_s(calls: Sequence[ReplayedCall], window_s: float) -> float:
    """Return the seconds since the first call, at most ``window_s``: a young ledger does not cover the window."""
    if not calls:
        return window_s
    began = min(call.started_s for call in calls)
    return max(_LEAST_S, min(window_s, datetime.now(UTC).timestamp() - began))


def _answered(request: ReplayRequest) -> dict[str, Any]:
    try:
        known, answers = replay_ledger(request)
    except ReplayError as error:
        return {"models": [], "data": [], "note": str(error)}
    except LedgerError as error:
        return {"unreachable": str(error)}
    data = [published(each.model, each.calls, each.replayed, request.without) for each in answers]
    return {"models": known, "data": data, "note": None}


def main() -> None:
    """Answer one request."""
    if hasattr(os, "nice"):
        os.nice(_GENTLE)
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=ReplayRequest)
    sys.stdout.buffer.write(encoded(_answered(request)))


if __name__ == "__main__":
    main()
