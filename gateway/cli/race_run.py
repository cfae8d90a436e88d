"""One race of a prompt, run in this process with the gateway's parts, without a server."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import msgspec

from gateway.api.call_context import ClientContext
from gateway.api.call_runner import CallRunner
from gateway.api.client import LOCAL
from gateway.api.endpoints import read_chat
from gateway.api.json_body import Contents
from gateway.api.plan_call import plan_call
from gateway.api.request import ParsedRequest
from gateway.app.fleets import Fleets
from gateway.app.gateway import Gateway
from gateway.cli.race_lanes import Lanes
from gateway.cli.race_view import View
from gateway.core.attempts import AttemptRecord, AttemptStart
from gateway.core.calls import Call, CallRecord, CallStart, Mode, Recorder
from gateway.core.prompt_classes import PromptClass
from gateway.core.race_failures import RaceFailed
from gateway.core.tasks import BackgroundTasks
from gateway.fleet.models import Model
from gateway.ledger import prepare_schema
from gateway.settings import Settings

TAGS = {"from": "holeshot race"}  # to exclude these calls in SQL


class Question(msgspec.Struct, frozen=True):
    """A prompt, and settings of its race. None: the model's configuration, or the provider's default."""

    model: str
    prompt: str
    system: str | None = None
    max_tokens: int | None = None
    mode: Mode | None = None
    width: int | None = None

    def body(self) -> dict[str, Any]:
        """Return the JSON of a streamed chat completion."""
        messages = [{"role": "user", "content": self.prompt}]
        if self.system is not None:
            messages.insert(0, {"role": "system", "content": self.system})
        mode = self.mode or (Mode.RACE if self.width is not None else None)  # a width implies a race
        race = {name: value for name, value in (("mode", mode), ("width", self.width)) if value is not None}
        body: dict[str, Any] = {"model": self.model, "messages": messages, "stream": True, "race": race}
        return body if self.max_tokens is None else body | {"max_tokens": self.max_tokens}

    def request(self) -> ParsedRequest:
        """Return the request for a streamed chat completion.

        Raises:
            InvalidRequest: a value is invalid.

        """
        return read_chat(Contents.of(msgspec.json.encode(self.body())), None)


@asynccontextmanager
async def open_gateway(settings: Settings, on_demo: Callable[[], None]) -> AsyncIterator[Gateway]:
    """Run a gateway without a server. Without configured providers it uses simulated ones, after calling ``on_demo``.

    Raises:
        LedgerError: the database cannot be used.
        RuntimeError: the simulated providers do not start.
        ConfigurationError: a provider cannot be opened.

    """
    async with AsyncExitStack() as stack:
        if not settings.providers:
            from gateway.server.demo import simulated_fleet, with_demo  # noqa: PLC0415 - only for users without a key

            on_demo()
            seed = random.randrange(2**32)  # noqa: S311 - else every first race would be the same
            settings = with_demo(settings, await stack.enter_async_context(simulated_fleet(seed)))
        await prepare_schema(settings.database_url.get_secret_value())
        gateway = Gateway(settings)
        stack.push_async_callback(gateway.close)
        await gateway.start()
        yield gateway


async def check_model(settings: Settings, name: str) -> None:
    """Check that ``name`` can be raced, before anything is started.

    Raises:
        ModelNotFound: with the nearest known names.
        ConfigurationError: a provider cannot be opened.

    """
    async with AsyncExitStack() as stack:
        if not settings.providers:
            from gateway.server.demo import (  # noqa: PLC0415 - only for users without a key
                demo_before_it_runs,
                past_any_proxy,
            )

            stack.enter_context(past_any_proxy())
            settings = demo_before_it_runs(settings)
        fleets = Fleets(None, BackgroundTasks())
        stack.push_async_callback(fleets.aclose)
        fleet = fleets.build(settings, None)
        stack.push_async_callback(fleet.aclose)
        fleet.find(name, adhoc=True)


async def run_race(gateway: Gateway, question: Question, view: View) -> Lanes:
    """Race ``question`` as the gateway would, with ledger and leaderboard, and show it in ``view``.

    Return the final lanes; without a complete answer they have an ``error``.

    Raises:
        ApiError: the model is unknown, or the question is invalid.

    """
    context = gateway.context
    request = question.request()
    services = context.services
    lanes = Lanes(services.clock, view, services.outbox.drain)
    shown = msgspec.structs.replace(services, recorder=_TwoRecorders(services.recorder, lanes))

    plan = partial(plan_call, context, request, ClientContext(client=LOCAL, tags=TAGS), allow=_with_budget)
    with context.fleet:
        runner = CallRunner(context, request.model, request.preferences, plan, may_fall_back=False, services=shown)
        await runner.begin()
        view.begins(lanes)
        try:
            await runner.run(partial(runner.stream, lanes))
        except RaceFailed as error:
            lanes.error = f"{error.message}; `holeshot check --live` asks each provider"
        finally:
            view.ends(lanes)
    return lanes


def _with_budget(model: Model) -> Model:
    """Return ``model`` with the budget that its width needs: the user requested the race explicitly."""
    race = model.race
    if race.mode is not Mode.RACE or race.budget >= race.width - 1.0:
        return model
    return msgspec.structs.replace(model, race=race.model_copy(update={"budget": race.width - 1.0}))


class _TwoRecorders:
    """Passes records to the gateway's own recorder and to the lanes."""

    def __init__(self, recorder: Recorder, lanes: Lanes) -> None:
        self._all: tuple[Recorder, Recorder] = (recorder, lanes)

    def call_started(self, start: CallStart) -> None:
        for each in self._all:
            each.call_started(start)

    def attempt_started(self, call: Call, start: AttemptStart) -> None:
        for each in self._all:
            each.attempt_started(call, start)

    def first_token(
        self, model: str, prompt_class: PromptClass, start: AttemptStart, ttft_s: float, ago_s: float
    ) -> None:
        for each in self._all:
            each.first_token(model, prompt_class, start, ttft_s, ago_s)

    def attempt_ended(self, model: str, prompt_class: PromptClass, attempt: AttemptRecord, ago_s: float) -> None:
        for each in self._all:
            each.attempt_ended(model, prompt_class, attempt, ago_s)

    def call_finished(self, record: CallRecord) -> None:
        for each in self._all:
            each.call_finished(record)

    def attempt_audited(self, model: str, attempt: AttemptRecord, duplicate_usd: float | None) -> None:
        for each in self._all:
            each.attempt_audited(model, attempt, duplicate_usd)
