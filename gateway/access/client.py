"""The client of a call and its permissions. Independent of HTTP."""

from collections.abc import Iterable, Mapping

import msgspec

from gateway.core.calls import Maker
from gateway.core.errors import Forbidden, NothingEnabled
from gateway.fleet import Deployment, Fleet, Model, TenantKeys
from gateway.settings import ClientRole, ClientSettings, DataPolicy, Profile, Unpriced, is_covered

WIDEST = 8


class Client(msgspec.Struct, frozen=True):
    """An admitted client and its permissions. Without keys, all local programs are one client without a name."""

    name: str | None = None
    role: ClientRole = ClientRole.ADMIN
    adhoc: bool = True
    max_width: int = WIDEST
    profile: Profile | None = None  # how calls are raced, unless a request overrides it
    override: bool = True  # whether requests may override the race settings
    models: frozenset[str] | None = None
    only: frozenset[str] | None = None
    ignore: frozenset[str] = frozenset()
    require: DataPolicy = DataPolicy()
    demanding: bool = False  # whether ``require`` has any requirement
    limits: Mapping[str, float] = {}  # by name: rpm, tpm, …
    zone: str | None = None  # of the limits' hours, days, weeks and months; None: the default
    team: str | None = None  # the team's limits count the client's calls, too
    end_user: str | None = None  # for all calls; None: each request may name one
    priority: int = 0  # under overload, higher is served first
    unpriced: Unpriced | None = None  # what happens to calls that limits in dollars cannot count
    tenant: TenantKeys | None = None  # the client's own provider keys; None: the client brings no keys

    def check_model(self, model: str) -> None:
        """Check that this client may use a model, or all models of a comma list.

        Raises:
            Forbidden: the client may not use the model, or not one in the list.

        """
        if self.models is None:
            return
        names = [name.strip() for name in model.split(",")]  # a comma list asks for all of its models
        if not self.models.issuperset(names) and not all(map(self.may_use, names)):
            error = Forbidden(f"this key may not use the model {model!r}; it may use: {', '.join(sorted(self.models))}")
            error.asked_model = model
            raise error

    def may_use(self, model: str) -> bool:
        """Whether this client may use a model: ``models`` has its name, or a pattern for it, such as ``claude-*``."""
        return self.models is None or is_covered(model, self.models)

    def made(self, maker: Maker | None, fleet: Fleet) -> bool:
        """Whether something stored at a provider was made with the key that this client would use now."""
        if maker is None or self.tenant is None:
            return maker is not None and maker.tenant is None
        if maker.tenant is not None:
            return maker.tenant in self.tenant.digests
        return fleet.provider_of(maker.deployment) not in self.tenant.keys

    def deployments(self, model: Model) -> list[Deployment]:
        """Return the deployments of ``model`` whose providers may see this client's prompts.

        Raises:
            NothingEnabled, Forbidden: there are none.

        """
        if not model.deployments:
            raise NothingEnabled(f"every deployment of {model.name!r} is disabled (enabled: false)")
        open_ = [item for item in model.deployments.values() if self.may_see(item.provider)]
        if not open_:
            raise Forbidden(f"this key may not use any provider of {model.name!r}")
        return open_

    def may_see(self, provider: str) -> bool:
        """Whether a provider may see this client's prompts."""
        return provider not in self.ignore and (self.only is None or provider in self.only)


LOCAL = Client()


def role_of(client: Client) -> ClientRole:
    """Return the role of a client: the rights beyond making calls."""
    return client.role


def person_of(client: Client, team: str | None, end_user: str | None) -> Client:
    """Return a client for one of its people; ``team`` and ``end_user``: None for the client's own."""
    return msgspec.structs.replace(client, team=team or client.team, end_user=end_user or client.end_user)


def client_of(name: str, settings: ClientSettings) -> Client:
    """Return the client with these settings."""

    def as_set(values: Iterable[str] | None) -> frozenset[str] | None:
        return None if values is None else frozenset(values)

    return Client(
        name=name,
        role=settings.role,
        adhoc=settings.adhoc,
        max_width=settings.max_width,
        profile=settings.profile,
        override=settings.override,
        models=as_set(settings.models),
        only=as_set(settings.only),
        ignore=frozenset(settings.ignore),
        require=settings.require,
        demanding=settings.require != DataPolicy(),
        limits=settings.by_name,
        zone=settings.limits_zone,
        team=settings.team,
        end_user=settings.end_user,
        priority=settings.priority,
        unpriced=settings.unpriced,
        tenant=TenantKeys({provider: key.get_secret_value() for provider, key in settings.provider_keys.items()}, name)
        if settings.provider_keys
        else None,
    )
