"""From a vendor's row and what the user says of it to the upstream that reaches it."""

from collections.abc import Mapping
from typing import Literal

from providers.catalog import Vendor
from providers.exchange import Upstream
from providers.http.dialing import TlsContexts, Versions
from providers.litellm_upstream import LiteLLM, LiteLLMUpstream
from providers.openai_compatible import OpenAICompatible
from providers.quirks import Quirks


def open_upstream(
    name: str,
    vendor: Vendor | None,
    litellm: LiteLLM,
    tls: TlsContexts,
    *,
    kind: Literal["openai_compatible", "litellm"] | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    organization: str | None = None,
    headers: Mapping[str, str] | None = None,
    versions: Versions = "auto",
) -> Upstream:
    """Return the upstream of provider ``name``; what is None is as the vendor's row says. Opens no connection yet.

    ``litellm`` is what the process shares of that library; it is imported only when such a provider is used.
    ``tls`` gives the contexts all providers share: making one costs 18 ms.

    Raises:
        ValueError: an OpenAI-compatible provider without a base URL.

    """
    kind = kind or (vendor.kind if vendor is not None else "openai_compatible")
    base_url = base_url or (vendor.base_url if vendor is not None else None)
    fixed = dict(headers or {})
    if organization is not None:
        fixed["openai-organization"] = organization
    if kind == "litellm":
        prefix = vendor.litellm_prefix if vendor is not None and vendor.litellm_prefix else name
        return LiteLLMUpstream(
            litellm,
            provider=name,
            litellm_prefix=prefix,
            api_key=api_key,
            base_url=base_url,
            headers=fixed,
            secrets=tuple(fixed.values()),
        )
    if base_url is None:
        raise ValueError(f"provider {name!r} needs a base_url")
    return OpenAICompatible(
        provider=name,
        base_url=base_url,
        api_key=api_key,
        auth=vendor.auth if vendor is not None else "bearer",
        headers=fixed,
        query=vendor.query if vendor is not None else None,
        chat_path=vendor.chat_path if vendor is not None else "chat/completions",
        embeddings_path=vendor.embeddings_path if vendor is not None else "embeddings",
        quirks=vendor.quirks if vendor is not None else Quirks(),
        secrets=tuple((headers or {}).values()),
        versions=versions,
        tls=tls,
    )
