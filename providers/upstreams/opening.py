"""Opens the upstream of a provider, from its vendor's row in the catalog and the user's settings."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from providers.dialects import History
from providers.exchange import Upstream
from providers.http import Batches, Names, TlsContexts, Versions
from providers.keys import KeyRing, Keys, RotatedKey, Rotation
from providers.refusals import Fleeting, Learnt
from providers.upstreams.http_upstream import HttpUpstream
from providers.upstreams.litellm_library import LiteLLM
from providers.upstreams.litellm_upstream import LiteLLMUpstream
from providers.vendors import Auth, ProviderKind, Quirks, Vendor


class _Service(msgspec.Struct, frozen=True):
    """What all servers of one kind have in common, beside their API."""

    base_url: str  # of the vendor that this API comes from
    auth: Auth
    headers: Mapping[str, str] = {}


_SERVICES: Mapping[ProviderKind, _Service] = {
    "anthropic": _Service("https://api.anthropic.com/v1", "x-api-key", {"anthropic-version": "2023-06-01"}),
    "gemini": _Service("https://generativelanguage.googleapis.com/v1beta", "x-goog-api-key"),
}


def open_upstream(
    name: str,
    vendor: Vendor | None,
    litellm: LiteLLM,
    tls: TlsContexts,
    *,
    kind: ProviderKind | None = None,
    base_url: str | None = None,
    api_keys: Sequence[str] = (),
    key_names: Sequence[str | None] = (),
    organization: str | None = None,
    headers: Mapping[str, str] | None = None,
    query: Mapping[str, str] | None = None,
    versions: Versions = "auto",
    batches: Batches | None = None,
    names: Names | None = None,
    connection_age_s: float | None = None,
    omits_finish_reason: bool = False,
    history: Mapping[str, Any] | None = None,
    secrets: Sequence[str] = (),
    former_keys: Sequence[Keys] = (),
    on_rotation: Callable[[Rotation], object] = lambda _: None,
    learnt: Learnt | None = None,
    for_client: bool = False,
) -> Upstream:
    """Return the upstream of provider ``name``; None means the value in the vendor's row. Does not connect yet.

    Each of several ``api_keys`` has its own connections and rate limits; ``key_names`` are their names in the ledger,
    None where the operator set none.
    ``former_keys``: each of ``api_keys`` again, with the keys that it replaces and that are not forgotten yet.
    ``on_rotation`` is called when a new key has answered, and when it is refused while a former one is not.
    ``learnt``: what refusals have taught about the provider's models; None: nothing yet.
    ``litellm`` is shared by the process; the library is imported only when such a provider is used.
    ``history``: what the operator says of it, by the fields of ``History``.
    ``tls`` has the contexts that all providers share: making one costs 18 ms. ``batches``: in which answers under way
    are read, over all of their connections; None: as they come. ``names``: those that all connect to, likewise shared.
    ``connection_age_s``: when a connection may leave for another of its name's addresses; None: never.
    ``secrets`` must not appear in messages, nor may the keys and the values of ``headers``.
    ``for_client``: the key is one client's, and nothing of it stays once the upstream is forgotten.

    Raises:
        ValueError: an OpenAI-compatible provider without a base URL.

    """
    kind = kind or (vendor.kind if vendor is not None else "openai_compatible")
    row = vendor or Vendor(name=name, title=name)
    quirks = _quirks(row, history, omits_finish_reason=omits_finish_reason)
    is_own_url = base_url is not None
    base_url = base_url or row.base_url
    service = _SERVICES.get(kind)
    if service is not None:
        base_url = base_url or service.base_url
    if base_url is None and kind != "litellm":
        raise ValueError(f"provider {name!r} needs a base_url")
    own, learnt = dict(headers or {}), learnt or Learnt()
    masked = (*own.values(), *secrets)
    fixed = {**(service.headers if service is not None else {}), **row.headers, **own}
    if organization is not None:
        fixed["openai-organization"] = organization

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
        common: dict[str, Any] = {
            "provider": name,
            "base_url": base_url,
            "headers": fixed,
            "query": {**row.query, **(query or {})},
            "quirks": quirks,
            "secrets": Fleeting(masked) if for_client else masked,
            "versions": versions,
            "tls": tls,
            "batches": batches,
            "names": names,
            "connection_age_s": connection_age_s,
            "is_own_url": is_own_url,
            "learnt": learnt,
            "chat_path": row.chat_path,
            "embeddings_path": row.embeddings_path,
            "models_path": row.models_path,
        }
        return _over_http(kind, row, api_key, common)

    replaced = {keys[0]: keys for keys in former_keys if len(keys) > 1}

    def opened_with(api_key: str) -> Upstream:
        if (keys := replaced.get(api_key)) is None:
            return opened(api_key)
        return RotatedKey(keys, opened, tell=on_rotation)

    if len(api_keys) > 1:
        return KeyRing(name, api_keys, opened_with, names=key_names)
    return opened_with(api_keys[0]) if api_keys else opened(None)


def _quirks(row: Vendor, history: Mapping[str, Any] | None, *, omits_finish_reason: bool) -> Quirks:
    """Return the row's quirks with what the operator says of the server."""
    quirks = row.quirks
    if omits_finish_reason:
        quirks = msgspec.structs.replace(quirks, repairs=quirks.repairs | {"finish_reason"})
    if history:
        own = {**msgspec.to_builtins(quirks.history), **history}
        quirks = msgspec.structs.replace(quirks, history=msgspec.convert(own, History))
    return quirks


def _over_http(kind: ProviderKind, row: Vendor, api_key: str | None, common: Mapping[str, Any]) -> Upstream:
    if kind == "bedrock":
        from providers.upstreams.bedrock import BedrockUpstream  # noqa: PLC0415 - only where it is used

        return BedrockUpstream(api_key=api_key, **common)
    if row.auth == "google" and kind == row.kind and api_key is None:
        from providers.upstreams.vertex import VertexUpstream  # noqa: PLC0415 - only where it is used

        return VertexUpstream(**common)
    service = _SERVICES.get(kind)
    auth = service.auth if service is not None else "bearer" if row.auth == "google" else row.auth
    return HttpUpstream(api_key=api_key, auth=auth, **common)
