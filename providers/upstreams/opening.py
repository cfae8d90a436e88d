"""Opens the upstream of a provider, from its vendor's row in the catalog and the user's settings."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from providers.dialects import DOORS, HistoryRules
from providers.exchange import Upstream
from providers.http import ALONE, Connecting
from providers.keys import KeyRing, Keys, RotatedKey, RotationOutcome
from providers.refusals import ClientSecrets, LearntFacts, MaskedRecord
from providers.upstreams.http_upstream import HttpUpstream, Server
from providers.upstreams.litellm_library import LiteLLM
from providers.upstreams.litellm_upstream import LiteLLMUpstream
from providers.vendors import Auth, ProviderKind, Quirks, Vendor, paths_at


class _Service(msgspec.Struct, frozen=True):
    """What all servers of one kind have in common, beside their API."""

    base_url: str | None  # of the vendor that this API comes from; None: each customer has one
    auth: Auth = "bearer"
    headers: Mapping[str, str] = {}
    paths: Mapping[str, str] = {}
    whole: Mapping[str, str] = {}


_CLOUDS: Final[tuple[ProviderKind, ...]] = ("invoke", "vertex")
_SERVICES: Mapping[ProviderKind, _Service] = {
    "anthropic": _Service("https://api.anthropic.com/v1", "x-api-key", {"anthropic-version": "2023-06-01"}),
    "gemini": _Service("https://generativelanguage.googleapis.com/v1beta", "x-goog-api-key"),
    **{kind: _Service(None, paths=DOORS[kind].paths, whole=DOORS[kind].whole) for kind in _CLOUDS},
}


class Setup(MaskedRecord, frozen=True, kw_only=True):
    """A provider as its operator has set it up; None means the value in its vendor's row."""

    name: str
    vendor: Vendor | None = None  # None: no vendor that is known
    kind: ProviderKind | None = None
    base_url: str | None = None
    paths: Mapping[str, str] = {}  # besides the row's, or in their place
    organization: str | None = None
    headers: Mapping[str, str] = {}  # besides the row's; their values must not appear in messages
    query: Mapping[str, str] = {}  # likewise
    omits_finish_reason: bool = False
    history: Mapping[str, Any] = {}  # by the fields of ``HistoryRules``

    def shown(self) -> Iterator[tuple[str, object]]:
        """Return its name: the rest may have secrets."""
        yield "name", self.name


class Credentials(MaskedRecord, frozen=True, kw_only=True):
    """The keys of a provider. Each of several has its own connections and rate limits."""

    keys: Sequence[str] = ()
    names: Sequence[str | None] = ()  # theirs in the ledger; None where the operator set none
    former: Sequence[Keys] = ()  # each again, with the keys that it replaces and that are not forgotten yet
    # Called when a new key has answered, and when it is refused while a former one is not.
    on_rotation: Callable[[RotationOutcome], object] = lambda _: None
    secrets: Sequence[str] = ()  # must not appear in messages either
    for_client: bool = False  # they are one client's, and nothing of them stays once the upstream is forgotten


NO_KEY: Final = Credentials()


def open_upstream(
    setup: Setup,
    credentials: Credentials = NO_KEY,
    *,
    litellm: LiteLLM,
    connecting: Connecting = ALONE,
    learnt: LearntFacts | None = None,
) -> Upstream:
    """Return the upstream of a provider. Does not connect yet.

    ``litellm`` is shared by the process; the library is imported only when such a provider is used. ``learnt``: what
    refusals have taught about the provider's models; None: nothing yet.

    Raises:
        ValueError: an OpenAI-compatible provider without a base URL.

    """
    name, row = setup.name, setup.vendor or Vendor(name=setup.name, title=setup.name)
    kind = setup.kind or row.kind
    service = _SERVICES.get(kind, _Service(None))
    is_rows_own = setup.vendor is not None and kind == row.kind  # whose key is not for the maker's own address
    base_url = setup.base_url or row.base_url or (None if is_rows_own else service.base_url)
    if base_url is None and kind != "litellm":
        raise ValueError(f"provider {name!r} needs a base_url")
    learnt = learnt or LearntFacts()
    masked = (*setup.headers.values(), *credentials.secrets)
    fixed = {**service.headers, **row.headers, **setup.headers}
    if setup.organization is not None:
        fixed["openai-organization"] = setup.organization

    def opened(api_key: str | None) -> Upstream:
        if kind == "litellm":
            return LiteLLMUpstream(
                litellm,
                provider=name,
                litellm_prefix=row.litellm_prefix or name,
                api_key=api_key,
                base_url=base_url,
                headers=fixed,
                secrets=masked,
                learnt=learnt,
            )
        assert base_url is not None
        server = Server(
            provider=name,
            base_url=base_url,
            auth=_auth(row if is_rows_own or kind not in _SERVICES else service),
            headers=fixed,
            query={**row.query, **setup.query},
            chat_path=row.chat_path,
            embeddings_path=row.embeddings_path,
            models_path=row.models_path,
            paths={**service.paths, **paths_at(row, setup.kind, setup.base_url), **setup.paths},
            whole=service.whole,
            quirks=_quirks(row, setup),
            is_own_url=setup.base_url is not None,
        )
        secrets = ClientSecrets(masked) if credentials.for_client else masked
        common: dict[str, Any] = {"secrets": secrets, "connecting": connecting, "learnt": learnt}
        return _over_http(kind, row if kind == row.kind else _PLAIN, server, api_key, common)

    replaced = {keys[0]: keys for keys in credentials.former if len(keys) > 1}

    def opened_with(api_key: str) -> Upstream:
        if (keys := replaced.get(api_key)) is None:
            return opened(api_key)
        return RotatedKey(keys, opened, tell=credentials.on_rotation)

    keys = credentials.keys
    if len(keys) > 1:
        return KeyRing(name, keys, opened_with, names=credentials.names)
    return opened_with(keys[0]) if keys else opened(None)


_PLAIN: Final = Vendor(name="", title="")


def _auth(of: Vendor | _Service) -> Auth:
    """Return how a key is sent: a token of Google's is sent as any other."""
    return "bearer" if of.auth == "google" else of.auth


def _over_http(
    kind: ProviderKind, row: Vendor, server: Server, api_key: str | None, common: dict[str, Any]
) -> Upstream:
    """Return the upstream of a server of this ``kind``, with a key or with what vouches for requests without one."""
    if kind == "bedrock":
        from providers.upstreams.bedrock import BedrockUpstream  # noqa: PLC0415 - only where it is used

        return BedrockUpstream(server, api_key, **common)
    if kind in _CLOUDS:
        from providers.upstreams import claude_clouds  # noqa: PLC0415 - only where it is used

        if kind == "invoke":
            return claude_clouds.InvokeUpstream(server, api_key, **common)
        if api_key is None:
            return claude_clouds.VertexModelsByToken(server, **common)
        return claude_clouds.VertexModels(server, api_key, **common)
    return HttpUpstream(server, api_key, **common) if api_key is not None else _without_key(row, server, common)


def _without_key(row: Vendor, server: Server, common: dict[str, Any]) -> Upstream:
    """Return the upstream of a server that has no key, with its vendor's own credentials if it has such."""
    if row.auth == "google":
        from providers.upstreams.vertex import VertexUpstream  # noqa: PLC0415 - only where it is used

        return VertexUpstream(server, **common)
    if row.signs:
        from providers.upstreams.signed import SignedUpstream  # noqa: PLC0415 - likewise

        return SignedUpstream(server, None, service=row.signs, **common)
    if row.tokens == "azure":
        from providers.upstreams.azure import AzureUpstream  # noqa: PLC0415 - likewise

        return AzureUpstream(server, **common)
    return HttpUpstream(server, None, **common)


def _quirks(row: Vendor, setup: Setup) -> Quirks:
    """Return the row's quirks with what the operator says of the server."""
    quirks = row.quirks
    if setup.omits_finish_reason:
        quirks = msgspec.structs.replace(quirks, repairs=quirks.repairs | {"finish_reason"})
    if setup.history:
        own = {**msgspec.to_builtins(quirks.history), **setup.history}
        quirks = msgspec.structs.replace(quirks, history=msgspec.convert(own, HistoryRules))
    return quirks
