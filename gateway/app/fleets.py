"""The successive fleets of a gateway: built from settings, and closed after their last call."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from gateway.access import sessions
from gateway.core.log import get_logger
from gateway.core.tasks import BackgroundTasks
from gateway.fleet import Callers, Fleet, OpenUpstream
from gateway.settings import ConfigurationError, Datasheets, Problem, ProviderSettings, Settings
from providers import (
    FORGOTTEN,
    Credentials,
    DatasheetTable,
    Fact,
    Keys,
    Kind,
    LearntFacts,
    LiteLLM,
    Met,
    RotationOutcome,
    Setup,
    Upstream,
    Vendor,
    load_catalog,
    open_upstream,
    succeeded,
)
from providers.http import ALONE, Connecting, Names, TlsContexts

# Opens upstreams from providers' settings and the catalog.


_STRICT = "history: { alternating: true, one_system: true, plain_texts: true, user_after_tool: false }"
CONNECTED_S = 20.0  # between two looks at connections to keep open; an idle one is replaced after 25 s
OnFact = Callable[[str, str, Fact, float, Met], object]


def log_fact(provider: str, model: str, fact: Fact, until: float, met: Met) -> None:
    """Log the fact that a refusal has taught, unless the fact turned out to be wrong."""
    deployment, fields_of_met = f"{provider}/{model}", _whose(met)
    if met.clients[-1] == FORGOTTEN:
        # Event deployment.forgotten: An operator had a deployment forget what a refusal has taught, in all replicas; or
        # its provider's settings have changed, and its keys, known to be of several accounts, may be others now.
        # Do: Nothing. If the provider still refuses it, that is learnt again.
        get_logger().info("deployment.forgotten", deployment=deployment, refused=fact.kind, **_told(fact))
    if not until:
        return
    if fact.kind is Kind.HISTORY and not fact.field:
        # Event deployment.strict_order: A server of an unknown kind refused a conversation for the order or names of
        # its roles, or for lists of texts, and took it in the strictest form, which it gets for a day.
        # Do: Set what the line says for the provider, or only what `holeshot check --live` finds: the first call after
        # each start is then sent once, not twice.
        get_logger().warning("deployment.strict_order", deployment=deployment, set=_STRICT, **fields_of_met)
        return
    # Event deployment.learnt: A provider refused a request and named what it does not take; the request was sent again
    # in another form, which this deployment gets for a day. `client` has met it, `why` is the status and the code. It
    # holds for that client alone, until a second one meets it: then `for_all` is true, and `others` has the first.
    # Callers are told in x-holeshot-dropped.
    # Do: Nothing. If callers need the field, use another deployment.
    get_logger().warning("deployment.learnt", deployment=deployment, refused=fact.kind, **_told(fact), **fields_of_met)


def _whose(met: Met) -> dict[str, object]:
    *others, client = met.clients
    fields = {"client": client, "others": ", ".join(filter(None, others)), "why": met.why}
    return {"for_all": met.is_for_all, **{name: value for name, value in fields.items() if value}}


def _tell_nobody(_provider: str, _model: str, _fact: Fact, _until: float, _met: Met) -> None:
    pass


def _told(fact: Fact) -> dict[str, str]:
    fields = {"field": fact.field, "value": fact.value, "sent": fact.instead, "api": fact.dialect}
    return {name: value for name, value in fields.items() if value}


def log_resolver(host: str, *, is_away: bool) -> None:
    """Log that the resolver is away, or back."""
    if is_away:
        # Event names.resolver_away: The machine's resolver does not answer, or refuses. New connections to `host` go to
        # the addresses that it gave last, for an hour at most. A name that it says is gone is not meant.
        # Do: Repair the resolver: see `/etc/resolv.conf`, in Kubernetes CoreDNS.
        get_logger().warning("names.resolver_away", host=host, effect="its last good addresses are used, for an hour")
    else:
        # Event names.resolver_back: The resolver has told of this name again.
        # Do: Nothing.
        get_logger().info("names.resolver_back", host=host)


class Upstreams:
    """Opens upstreams, which share the litellm library, the TLS context and the addresses of names.

    With ``rotates`` each provider's keys are kept, so that a new key replaces the former one without a failed call. A
    command with one upstream for each key does not need this. ``on_fact`` is called with a provider, one of its models,
    the fact taught by a refusal, the fact's end in Unix time, and the clients that met it.
    """

    def __init__(
        self, *, rotates: bool = False, on_fact: OnFact = _tell_nobody, connecting: Connecting = ALONE
    ) -> None:
        self._rotates = rotates
        self._on_fact = on_fact
        self._learnt: dict[str, tuple[tuple[object, ...], LearntFacts]] = {}  # by provider: the address
        self._litellm = LiteLLM()
        self.names = Names(tell=log_resolver)
        self._connecting = replace(connecting, tls=connecting.tls or TlsContexts(), names=self.names)
        self._known: dict[str, tuple[tuple[object, ...], dict[int | str, Keys]]] = {}  # by provider: address, keys

    def open(
        self,
        name: str,
        settings: ProviderSettings,
        vendor: Vendor | None,
        secrets: Sequence[str] = (),
        *,
        for_tenant: bool = False,
    ) -> Upstream:
        """Return the upstream of provider ``name``, not yet connected.

        ``secrets``: further ones, besides the provider's own, to be masked in messages. ``for_tenant``: the upstream
        has a client's own key, which replaces no other key.

        Raises:
            ConfigurationError: the settings lack a base URL, are impossible in a request, or the environment's proxy is

        """
        # A former key is used only for the same account at the same address.
        paths = tuple(settings.paths.items())
        address = (settings.kind, settings.preset, settings.base_url, paths, settings.organization)
        known_at, before = (address, {}) if for_tenant else self._known.get(name, (address, {}))
        places = settings.api_keys or ({} if settings.api_key is None else {0: settings.api_key})
        keys = succeeded(
            {place: key.get_secret_value() for place, key in places.items()}, before if known_at == address else {}
        )

        def on_rotation(rotation: RotationOutcome) -> None:
            if rotation is RotationOutcome.DONE:
                # Event key.replaced: A provider's new key has answered, and the one before is forgotten.
                # Do: The former key can be revoked.
                get_logger().info("key.replaced", provider=name)
            else:
                # Event key.refused: A provider refuses its new key; the one before stays in use. The new one is tried
                # again every 10 s.
                # Do: Some providers need minutes to know a key. Else correct it, before the former one ends.
                get_logger().warning("key.refused", provider=name, effect="the former key stays in use")

        try:
            upstream = open_upstream(
                Setup(
                    name=name,
                    vendor=vendor,
                    kind=settings.kind,
                    base_url=settings.base_url,
                    paths=settings.paths,
                    organization=settings.organization,
                    headers={key: value.get_secret_value() for key, value in settings.headers.items()},
                    query=settings.query,
                    omits_finish_reason=settings.omits_finish_reason,
                    history=settings.history.model_dump(exclude_unset=True),
                ),
                Credentials(
                    keys=[key.get_secret_value() for key in settings.keys],
                    names=settings.key_names,
                    former=tuple(keys.values()),
                    on_rotation=on_rotation,
                    secrets=secrets,
                    for_client=for_tenant,
                ),
                litellm=self._litellm,
                connecting=replace(self._connecting, versions=settings.http_version, age_s=settings.connection_age_s),
                learnt=None if for_tenant else self._learnt_at(name, address),
            )
        except ValueError as error:
            raise ConfigurationError([Problem(str(error))]) from error
        if self._rotates and not for_tenant:
            self._known[name] = address, keys
        return upstream

    def learnt(self, provider: str) -> LearntFacts | None:
        """Return the facts that refusals have taught about a provider's models; None if the provider is not open."""
        return self._learnt[provider][1] if provider in self._learnt else None

    def _learnt_at(self, name: str, address: tuple[object, ...]) -> LearntFacts:
        """Return the facts that refusals of the provider ``name`` taught, also before a reload at the same address."""
        entry = self._learnt.get(name)
        if entry is None or entry[0] != address or not self._rotates:
            entry = self._learnt[name] = address, LearntFacts(partial(self._on_fact, name))
        for each in [each for each in entry[1].listed() if each.fact.kind is Kind.ACCOUNT]:
            entry[1].drop(each.model, each.fact)  # the provider's keys may be others now
        return entry[1]

    async def aclose(self) -> None:
        """Close the shared parts, after every upstream is closed."""
        await self._litellm.aclose()


class Fleets:
    """Builds fleets and retires them. ``open_upstream``: None for upstreams over the network.

    ``own_key``: the key beside a SQLite database, which seals reasoning if the settings have no secret.
    """

    def __init__(
        self,
        open_upstream: OpenUpstream | None,
        tasks: BackgroundTasks,
        connecting: Connecting = ALONE,
        own_key: str = "",
    ) -> None:
        self.retiring: asyncio.Task[None] | None = None  # closes the fleet that was replaced last
        self._catalog = load_catalog()
        self.tell: OnFact | None = None  # tells the other replicas about facts taught by refusals
        self._upstreams = Upstreams(rotates=True, on_fact=self._on_fact, connecting=connecting)
        self._is_given = open_upstream is not None
        self._open_upstream = open_upstream or self._upstreams.open
        self._tasks = tasks
        self._own_key = own_key
        self._retired: dict[Fleet, Fleet] = {}  # replaced fleet, not closed yet → its successor

    def build(self, settings: Settings, previous: Fleet | None) -> Fleet:
        """Return the fleet of ``settings``, with the upstreams of ``previous`` that stay unchanged.

        Raises:
            ConfigurationError: a provider cannot be opened.

        """
        return Fleet(
            settings,
            self._catalog,
            open_upstream=self._open_upstream,
            find_datasheet=Datasheets(settings, self._catalog, DatasheetTable.shipped(settings.prices.file)).of,
            previous=previous,
            open_for_tenant=None if self._is_given else partial(self._upstreams.open, for_tenant=True),
            secret=sessions.secret_of(settings, self._own_key),
        )

    @property
    def names_away(self) -> int:
        """The number of names connected by their last good addresses, as the resolver is away."""
        return self._upstreams.names.away

    def learnt(self, provider: str) -> LearntFacts | None:
        """Return the facts that refusals have taught about a provider's models; None if the provider is not open."""
        return self._upstreams.learnt(provider)

    def _on_fact(self, provider: str, model: str, fact: Fact, until: float, met: Met) -> None:
        log_fact(provider, model, fact, until, met)
        if self.tell is not None:
            self.tell(provider, model, fact, until, met)

    def warm_up(self, fleet: Fleet) -> None:
        """Import litellm, and fetch credentials, in the background, before one of the fleet's deployments is raced."""
        deployments = (each for model in fleet.models.values() for each in model.deployments.values())
        for upstream in {each.upstream for each in deployments if each.upstream.needs_warming}:
            self._tasks.start(upstream.warm_up())

    async def stay_connected(self, fleet: Callable[[], Fleet], callers: Callable[[], Callers]) -> None:
        """Keep a connection open to each deployment with ``race.keep_connected``, until cancelled."""
        while True:
            for upstream in fleet().to_keep_connected(callers()):
                upstream.connect()
            await asyncio.sleep(CONNECTED_S)

    def retire(self, old: Fleet, new: Fleet) -> None:
        """Close the upstreams that ``new`` did not take over, in the background, after the last call with ``old``."""
        self._retired[old] = new
        self.retiring = self._tasks.start(self._retire(old, new, self.retiring))

    async def close_retired(self) -> None:
        """Close the replaced fleets that are still open. The background tasks must have ended."""
        for old, new in self._retired.items():
            await old.aclose(successor=new)

    async def aclose(self) -> None:
        """Close the parts shared by upstreams, after every fleet is closed."""
        await self._upstreams.aclose()

    async def _retire(self, old: Fleet, new: Fleet, after: asyncio.Task[None] | None) -> None:
        """Close ``old`` when neither it nor a fleet before it is used."""
        if after is not None:
            await after
        await old.idle()
        await old.aclose(successor=new)
        del self._retired[old]
        # Event configuration.old_connections_closed: All calls of a replaced configuration have ended; its connections
        # to providers are closed.
        # Do: Nothing.
        get_logger().info("configuration.old_connections_closed")
