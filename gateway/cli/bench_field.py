"""The deployments that a bench compares: from the configuration, or from a running gateway."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec

from gateway.background_tasks import BackgroundTasks
from gateway.bench.goal import Goal
from gateway.bench.measuring import asked_of, unfit_for
from gateway.bench.plan import Contender, Plan
from gateway.bench.prompts import Lengths, expected_answer
from gateway.bench.purse import Cost, cost_of
from gateway.bench.sample import Key
from gateway.cli.configuration import read_settings
from gateway.cli.remote import GatewayError, get
from gateway.cli.terminal import MISUSED, fail, say
from gateway.errors import ApiError
from gateway.fleet.deployment import Clocks, Deployment
from gateway.fleets import Fleets
from gateway.settings.model import Settings
from providers.http.dialing import TlsContexts
from providers.litellm_library import LiteLLM
from providers.opening import open_upstream
from providers.prices import Price

_CLOCKS = Clocks(connect_s=5.0, ttft_s=300.0, stall_s=300.0, total_s=None)  # of the gateway, which has its own


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command line."""

    config: Path | None
    model: str | None
    deployments: tuple[str, ...]
    url: str | None
    key: str | None
    kinds: tuple[str, ...]
    rounds: int
    concurrencies: tuple[int, ...]
    warm_up: int
    answer_tokens: int
    prompt_tokens: int
    goal: Goal | None
    seed: int


class Field(msgspec.Struct, frozen=True):
    """Who runs: deployments by name, each with the model it belongs to, open until the bench ends."""

    deployments: Mapping[str, Deployment]
    models: Mapping[str, str]
    is_demo: bool = False

    def plan(self, wanted: Wanted) -> Plan:
        """Return the plan of a new bench."""
        plan = Plan(
            seed=wanted.seed,
            contenders=tuple(self._contender(name) for name in self.deployments),
            kinds=wanted.kinds,
            concurrencies=wanted.concurrencies,
            rounds=wanted.rounds,
            warm_up=wanted.warm_up,
            lengths=Lengths(wanted.prompt_tokens, wanted.answer_tokens),
            goal=wanted.goal,
            url=None if wanted.url is None else shown_url(wanted.url),
            is_demo=self.is_demo,
        )
        fitted = tuple(msgspec.structs.replace(each, leaves_out=self._left_out(plan, each)) for each in plan.contenders)
        return msgspec.structs.replace(plan, contenders=fitted)

    def costs(self, plan: Plan) -> dict[tuple[str, str], Cost]:
        """Return what a request costs, by deployment and class."""
        costs = {}
        for contender in plan.contenders:
            price = self.deployments[contender.name].price
            for kind in plan.kinds_of(contender):
                asked = asked_of(plan, contender, _key(contender.name, kind), 0)
                answer = expected_answer(kind, plan.lengths)
                costs[contender.name, kind] = cost_of(price, asked.needs.prompt_tokens, answer.about, answer.at_most)
        return costs

    def _contender(self, name: str) -> Contender:
        price = self.deployments[name].price
        return Contender(
            name=name,
            model=self.models[name],
            input_usd=None if price is None else round(price.input_usd * 1e6, 6),
            output_usd=None if price is None else round(price.output_usd * 1e6, 6),
        )

    def _left_out(self, plan: Plan, contender: Contender) -> dict[str, str]:
        reasons = {}
        for kind in plan.kinds:
            asked = asked_of(plan, contender, _key(contender.name, kind), 0)
            reason = unfit_for(asked, self.deployments[contender.name])
            if reason is not None:
                reasons[kind] = reason
        return reasons


def _key(deployment: str, kind: str) -> Key:
    return Key(0, 1, deployment, kind, 0)


@asynccontextmanager
async def open_field(wanted: Wanted, past: Plan | None) -> AsyncIterator[Field]:
    """Open the deployments that ``wanted`` names, or those of an earlier start, and close them at the end."""
    url = wanted.url if past is None else past.url
    async with AsyncExitStack() as stack:
        if url is not None:
            field = _through_gateway(url, wanted, past, stack)
        else:
            field = await _from_configuration(wanted, past, stack)
        if not field.deployments:
            fail("no deployment is left to measure", MISUSED)
        if past is not None:
            missing = [each.name for each in past.contenders if each.name not in field.deployments]
            if missing:
                fail(f"the journal's {', '.join(missing)} cannot be measured any more: it is not configured", MISUSED)
        yield field


async def _from_configuration(wanted: Wanted, past: Plan | None, stack: AsyncExitStack) -> Field:
    settings, _ = read_settings(wanted.config)
    settings, is_demo = await _with_providers(settings, wanted.seed if past is None else past.seed, stack)
    tasks = BackgroundTasks()
    fleets = Fleets(None, tasks)
    try:
        fleet = fleets.build(settings, None)
    except ValueError as error:
        fail(str(error))
    stack.push_async_callback(fleets.aclose)
    stack.push_async_callback(fleet.aclose)
    stack.push_async_callback(tasks.close)
    names = list(dict.fromkeys(each.model for each in past.contenders)) if past is not None else [wanted.model]
    deployments: dict[str, Deployment] = {}
    models: dict[str, str] = {}
    for asked in names:
        name = asked or next(iter(fleet.models), None)
        if name is None:
            fail("no model is configured; name deployments: holeshot bench provider/model,provider/model", MISUSED)
        try:
            model = fleet.find(name, adhoc=True)
        except ApiError as error:
            fail(str(error), MISUSED)
        for each in model.deployments.values():
            deployments.setdefault(each.name, each)
            models.setdefault(each.name, name)
    fleets.warm_up(fleet)
    chosen = _chosen(list(deployments), wanted, past)
    return Field({name: deployments[name] for name in chosen}, models, is_demo)


async def _with_providers(settings: Settings, seed: int, stack: AsyncExitStack) -> tuple[Settings, bool]:
    """Return the settings, with simulated providers if there are none."""
    if settings.providers:
        return settings, False
    from gateway.demo import DemoFailedError, simulated_fleet, with_demo  # noqa: PLC0415 - only for users without a key

    say("no provider keys were found: measuring simulated providers", err=True)
    try:
        return with_demo(settings, await stack.enter_async_context(simulated_fleet(seed))), True
    except DemoFailedError as error:
        fail(str(error))


def _through_gateway(url: str, wanted: Wanted, past: Plan | None, stack: AsyncExitStack) -> Field:
    base = url.rstrip("/").removesuffix("/v1")
    try:
        listed = _models(base, wanted.key)
        wanted_models = (
            list(dict.fromkeys(each.model for each in past.contenders)) if past is not None else [wanted.model]
        )
        upstream = open_upstream(
            "gateway",
            None,
            LiteLLM(),
            TlsContexts(),
            base_url=f"{base}/v1",
            api_keys=[wanted.key] if wanted.key else [],
        )
        stack.push_async_callback(upstream.aclose)
        deployments: dict[str, Deployment] = {}
        models: dict[str, str] = {}
        for asked in wanted_models:
            model = _find(listed, asked)
            for name in _chosen(list(model.deployments), wanted, past):
                price = _priced(base, wanted.key, name) or model.price
                models[name] = model.id
                deployments[name] = Deployment(
                    name=name,
                    provider="gateway",
                    model=model.id,
                    upstream=upstream,
                    clocks=_CLOCKS,
                    price=price,
                    bills_after_disconnect=None,
                    extra_body={
                        "provider": msgspec.Raw(msgspec.json.encode({"only": [name], "allow_fallbacks": False})),
                        "race": msgspec.Raw(b'{"mode":"single"}'),
                    },
                    upstream_stream=True,
                )
    except GatewayError as error:
        fail(str(error))
    return Field(deployments, models)


class _Pricing(msgspec.Struct):
    prompt: str
    completion: str
    input_cache_read: str | None = None
    input_cache_write: str | None = None
    internal_reasoning: str | None = None


class _Listed(msgspec.Struct):
    id: str
    deployments: list[str] = []
    pricing: _Pricing | None = None

    @property
    def price(self) -> Price | None:
        """The price of its dearest deployment."""
        if self.pricing is None:
            return None
        said = self.pricing

        def usd(text: str | None) -> float | None:
            return None if text is None else float(text)

        return Price(
            input_usd=float(said.prompt),
            output_usd=float(said.completion),
            cached_input_usd=usd(said.input_cache_read),
            cache_write_usd=usd(said.input_cache_write),
            reasoning_usd=usd(said.internal_reasoning),
        )


class _List(msgspec.Struct):
    data: list[_Listed]


def _models(base: str, key: str | None) -> list[_Listed]:
    """Return the models of a gateway.

    Raises:
        GatewayError: it cannot be asked, or is none of ours.

    """
    try:
        return msgspec.json.decode(get(f"{base}/v1/models", key), type=_List).data
    except msgspec.DecodeError:
        raise GatewayError(f"{shown_url(base)} is no Holeshot gateway") from None


def _priced(base: str, key: str | None, deployment: str) -> Price | None:
    """Return the price of one deployment, if this key may name it."""
    try:
        return msgspec.json.decode(get(f"{base}/v1/models/{quote(deployment)}", key), type=_Listed).price
    except (GatewayError, msgspec.DecodeError, ValueError):
        return None


def _find(listed: list[_Listed], name: str | None) -> _Listed:
    known = [model.id for model in listed]
    if not known:
        fail("the gateway has no model that this key may use", MISUSED)
    found = next((model for model in listed if name in (None, model.id)), None)
    if found is None:
        fail(f"the gateway has no model {name!r}; it has {', '.join(known)}", MISUSED)
    return found


def _chosen(names: list[str], wanted: Wanted, past: Plan | None) -> list[str]:
    """Return the deployments that are measured."""
    asked = wanted.deployments if past is None else tuple(each.name for each in past.contenders)
    unknown = [name for name in asked if name not in names]
    if unknown and past is None:
        fail(f"there is no deployment {unknown[0]!r} here; there are {', '.join(names)}", MISUSED)
    return [name for name in names if not asked or name in asked]


def shown_url(url: str) -> str:
    """Return ``url`` without user and password."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
