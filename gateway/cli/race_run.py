"""One race of a prompt: in this process with the gateway's parts, without a server, or at a running gateway."""

import http.client
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import msgspec

from gateway.access import LOCAL
from gateway.api import CallAsked, CallRunner, ClientContext, ParsedRequest, planned_call, read_chat
from gateway.app import Fleets, Gateway
from gateway.cli.race_lanes import Lanes, read_text
from gateway.cli.race_view import View
from gateway.cli.remote import GatewayError, get, posted
from gateway.core.attempts import AttemptRecord, AttemptStart
from gateway.core.calls import Call, CallRecord, CallStart, Mode, Recorder
from gateway.core.prompt_classes import PromptClass
from gateway.core.race_failures import RaceFailed
from gateway.core.tasks import BackgroundTasks
from gateway.fleet import Model
from gateway.http import Contents
from gateway.ledger import prepare_schema
from gateway.racing import ClientGone
from gateway.settings import Settings

TAGS = {"from": "holeshot race"}  # to exclude these calls in SQL


class RacePrompt(msgspec.Struct, frozen=True):
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
    """Run a gateway without a server. Without configured providers, call ``on_demo`` and run simulated providers.

    Raises:
        LedgerError: the database cannot be used.
        RuntimeError: the simulated providers do not start.
        ConfigurationError: a provider cannot be opened.

    """
    async with AsyncExitStack() as stack:
        if not settings.providers:
            from gateway.server import simulated_fleet, with_demo  # noqa: PLC0415 - only for users without a key

            on_demo()
            seed = random.randrange(2**32)  # noqa: S311 - otherwise every first race would be the same
            settings = with_demo(settings, await stack.enter_async_context(simulated_fleet(seed)))
        database_answers = await prepare_schema(settings.database_url.get_secret_value())
        gateway = Gateway(settings)
        stack.push_async_callback(gateway.close)
        await gateway.start(database_answers=database_answers)
        yield gateway


async def check_model(settings: Settings, name: str) -> None:
    """Check that ``name`` can be raced, before anything is started.

    Raises:
        ModelNotFound: ``name`` is unknown; the message has the nearest known names.
        ConfigurationError: a provider cannot be opened.

    """
    async with AsyncExitStack() as stack:
        if not settings.providers:
            from gateway.server import demo_before_it_runs, past_any_proxy  # noqa: PLC0415 - only for users without a key

            stack.enter_context(past_any_proxy())
            settings = demo_before_it_runs(settings)
        fleets = Fleets(None, BackgroundTasks())
        stack.push_async_callback(fleets.aclose)
        fleet = fleets.build(settings, None)
        stack.push_async_callback(fleet.aclose)
        fleet.find(name, adhoc=True)


async def run_race(gateway: Gateway, question: RacePrompt, view: View) -> Lanes:
    """Race ``question`` as the gateway would, with ledger and leaderboard, and show it in ``view``.

    Return the final lanes. Without a complete answer the lanes have an ``error``.

    Raises:
        ApiError: the model is unknown, or the question is invalid.

    """
    request = question.request()
    lanes = Lanes(gateway.context.services.clock, view, gateway.context.services.outbox.drain)
    async with running_call(gateway, request, lanes, TAGS, allow=_with_budget) as run:
        view.begins(lanes)
        try:
            await run()
        except RaceFailed as error:
            lanes.error = f"{error.message}; `holeshot check --live` asks each provider"
        finally:
            view.ends(lanes)
    return lanes


@asynccontextmanager
async def running_call(
    gateway: Gateway,
    request: ParsedRequest,
    lanes: Lanes,
    tags: Mapping[str, str],
    *,
    allow: Callable[[Model], Model] | None = None,
) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    """Plan a call of this process, without fallbacks, and yield what runs the call; its events go to ``lanes`` too.

    Raises:
        ApiError: the model is unknown, or the request is invalid.

    """
    context = gateway.context
    services = context.services
    shown = msgspec.structs.replace(services, recorder=_TwoRecorders(services.recorder, lanes))
    asked = CallAsked(context, request, ClientContext(client=LOCAL, tags=tags), allow=allow)
    plan = partial(planned_call, asked)
    with context.fleet:
        runner = CallRunner(context, request.model, request.preferences, plan, may_fall_back=False, services=shown)
        await runner.begin()
        yield partial(runner.run, partial(runner.stream, lanes))


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


# At a running gateway: the answer as it streams, then the lanes, from the call's row.

_SILENT_S = 600.0  # a model may think for minutes, and the gateway has limits of its own
_STORED_WITHIN_S = 5.0  # a call's end is known at once; the end of another worker's call, when its row is stored
_AGAIN_S = 0.15
_NOT_FOUND = 404
_T = TypeVar("_T", AttemptRecord, CallRecord)


def models_of(url: str, key: str | None) -> list[str]:
    """Return the models of the gateway that this key may use.

    Raises:
        GatewayError: the gateway could not be asked.

    """
    address = f"{url}/v1/models"
    try:
        return [str(each["id"]) for each in msgspec.json.decode(get(address, key, is_clients=True))["data"]]
    except (msgspec.DecodeError, KeyError, TypeError):
        raise GatewayError(f"{address} does not answer like a Holeshot gateway") from None


def race_at(url: str, key: str | None, question: RacePrompt, view: View) -> Lanes:
    """Race ``question`` at the gateway, and show it in ``view``; without a complete answer the lanes have an ``error``.

    The lanes are made from the call's row, which only an admin, an operator or a viewer may read.

    Raises:
        OSError: the output is closed, or its disk is full.

    """
    lanes = Lanes(time.monotonic, view)
    tags = ",".join(f"{name}={value}" for name, value in TAGS.items())
    view.begins(lanes)
    try:
        body, headers = msgspec.json.encode(question.body()), {"x-holeshot-tags": tags}
        with posted(f"{url}/v1/chat/completions", key, body, _SILENT_S, headers) as answer:
            call_id = answer.headers.get("x-holeshot-call-id")
            lanes.error = _read(answer, lanes)
        found = None if call_id is None else _row(url, key, call_id)
        if found is not None:
            _fill(lanes, found)
    except GatewayError as error:
        lanes.error = str(error)
    except ClientGone as gone:
        raise (gone.__cause__ or gone) from None
    finally:
        view.ends(lanes)
    return lanes


def _read(answer: Iterable[bytes], lanes: Lanes) -> str | None:
    """Add the answer's text as it comes; return why the answer is not complete.

    Raises:
        ClientGone: the output is closed, or its disk is full; not an OSError, which would be the connection's.

    """
    try:
        for line in answer:
            data = line.strip().removeprefix(b"data: ")
            if data == line.strip():  # an empty line, or a comment
                continue
            if data == b"[DONE]":
                return None
            if (error := msgspec.json.decode(data, type=dict[str, Any]).get("error")) is not None:
                return f"the answer broke off ({error.get('message')})"
            try:
                lanes.add_text(*read_text(data))
            except OSError as error:
                raise ClientGone from error
    except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:  # the last: half an event
        return f"the answer broke off ({error})"
    return "the answer broke off (the connection ended before it did)"


def _row(url: str, key: str | None, call_id: str) -> dict[str, Any] | None:
    """Return the ended call with its attempts; None if this key may not read the call, or no row of it is found."""
    until = time.monotonic() + _STORED_WITHIN_S
    while time.monotonic() < until:
        try:
            found: dict[str, Any] = msgspec.json.decode(get(f"{url}/api/calls/{call_id}", key))
        except GatewayError as error:
            if error.status != _NOT_FOUND:
                return None
        else:
            if found.get("source") != "running":
                return found
        time.sleep(_AGAIN_S)
    return None


def _fill(lanes: Lanes, found: Mapping[str, Any]) -> None:
    """Add the lanes of a call that has ended, and tell the viewers how each attempt ended."""
    attempts = tuple(_read_as(AttemptRecord, each) for each in found["attempts"])
    record = msgspec.structs.replace(_read_as(CallRecord, found["call"]), attempts=attempts)
    lanes.claimed_ms = record.ttft_ms
    for each in attempts:
        start = AttemptStart(
            each.id, each.number, each.started_at, each.role, each.provider, each.deployment, each.launch_offset_ms
        )
        lane = lanes.add(start)
        lane.first_token_ms = each.ttft_ms
        lane.ended_ms = each.last_token_ms if each.censored_at_ms is None else each.censored_at_ms
    lanes.call_finished(record)
    for lane in lanes.lanes:
        lanes.tell(lane)


def _read_as(kind: type[_T], row: Mapping[str, Any]) -> _T:
    """Return a row as the record from which it was made; a null keeps the field's default, if there is one."""
    fields = [field for field in msgspec.structs.fields(kind) if field.name in row]
    known = {field.name: row[field.name] for field in fields if field.required or row[field.name] is not None}
    return msgspec.convert(known, kind, strict=False)
