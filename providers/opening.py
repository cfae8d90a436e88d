"""Opens the upstream of a provider, from its vendor's row in the catalog and the user's settings."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from providers.catalog import Kind, Vendor
from providers.exchange import Upstream
from providers.http import TlsContexts, Versions
from providers.http_upstream import HttpUpstream
from providers.key_ring import KeyRing
from providers.key_rotation import Keys, RotatedKey, Rotation
from providers.litellm_library import LiteLLM
from providers.litellm_upstream import LiteLLMUpstream

_ANTHROPIC_URL = "https://api.anthropic.com/v1"
_ANTHROPIC_HEADERS = {"anthropic-version": "2023-06-01"}


def open_upstream(
    name: str,
    vendor: Vendor | None,
    litellm: LiteLLM,
    tls: TlsContexts,
    *,
    kind: Kind | None = None,
    base_url: str | None = None,
    api_keys: Sequence[str] = (),
    key_names: Sequence[str | None] = (),
    organization: str | None = None,
    headers: Mapping[str, str] | None = None,
    query: Mapping[str, str] | None = None,
    versions: Versions = "auto",
    omits_finish_reason: bool = False,
    secrets: Sequence[str] = (),
    former_keys: Sequence[Keys] = (),
    on_rotation: Callable[[Rotation], object] = lambda _: None,
) -> Upstream:
    """Return the upstream of provider ``name``; None means the value in the vendor's row. Does not connect yet.

    Each of several ``api_keys`` has its own connections and rate limits; ``key_names`` are their names in the ledger,
    None where the operator set none.
    ``former_keys``: each of ``api_keys`` again, with the keys that it replaces and that are not forgotten yet.
    ``on_rotation`` is called when a new key has answered, and when it is refused while a former one is not.
    ``litellm`` is shared by the process; the library is imported only when such a provider is used.
    ``tls`` has the contexts that all providers share: making one costs 18 ms.
    ``secrets`` must not appear in messages, nor may the keys and the values of ``headers``.

    Raises:
        ValueError: an OpenAI-compatible provider without a base URL.

    """
    kind = kind or (vendor.kind if vendor is not None else "openai_compatible")
    row = vendor or Vendor(name=name, title=name)
    quirks = row.quirks
    if omits_finish_reason:
        quirks = msgspec.structs.replace(quirks, repairs=quirks.repairs | {"finish_reason"})
    is_own_url = base_url is not None
    base_url = base_url or row.base_url
    if kind == "anthropic":
        base_url = base_url or _ANTHROPIC_URL
    if base_url is None and kind != "litellm":
        raise ValueError(f"provider {name!r} needs a base_url")
    own = dict(headers or {})
    fixed = {**(_ANTHROPIC_HEADERS if kind == "anthropic" else {}), **row.headers, **own}
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
                secrets=(*own.values(), *secrets),
            )
        assert base_url is not None
        return HttpUpstream(
            provider=name,
            base_url=base_url,
            api_key=api_key,
            auth="x-api-key" if kind == "anthropic" else row.auth,
            headers=fixed,
            query={**row.query, **(query or {})},
            chat_path=row.chat_path,
            embeddings_path=row.embeddings_path,
            models_path=row.models_path,
            quirks=quirks,
            secrets=(*own.values(), *secrets),
            versions=versions,
            tls=tls,
            is_own_url=is_own_url,
        )

    replaced = {keys[0]: keys for keys in former_keys if len(keys) > 1}

    def opened_with(api_key: str) -> Upstream:
        if (keys := replaced.get(api_key)) is None:
            return opened(api_key)
        return RotatedKey(keys, opened, tell=on_rotation)

    if len(api_keys) > 1:
        return KeyRing(name, api_keys, opened_with, names=key_names)
    return opened_with(api_keys[0]) if api_keys else opened(None)
