"""Opening upstreams: from what the settings and the catalog say of a provider to what reaches it."""

from gateway.settings.model import ProviderSettings
from providers.catalog import Vendor
from providers.exchange import Upstream
from providers.http.dialing import TlsContexts
from providers.litellm_upstream import LiteLLM, LiteLLMUpstream
from providers.opening import open_upstream


class Upstreams:
    """Opens upstreams that share what one process needs once: the litellm library and the TLS context."""

    def __init__(self) -> None:
        self._litellm = LiteLLM()
        self._tls = TlsContexts()

    def open(self, name: str, settings: ProviderSettings, vendor: Vendor | None) -> Upstream:
        """Return the upstream of provider ``name``; nothing is connected yet.

        Raises:
            ValueError: neither the settings nor the vendor's row have a base URL.

        """
        return open_upstream(
            name,
            vendor,
            self._litellm,
            self._tls,
            kind=settings.kind,
            base_url=settings.base_url,
            api_key=settings.api_key.get_secret_value() if settings.api_key is not None else None,
            organization=settings.organization,
            headers={key: value.get_secret_value() for key, value in settings.headers.items()},
            versions=settings.http_version,
        )

    @staticmethod
    def needs_warming(upstream: Upstream) -> bool:
        """Tell whether the first call through ``upstream`` would wait seconds for litellm to be imported."""
        return isinstance(upstream, LiteLLMUpstream)

    async def warm_up(self) -> None:
        """Have litellm imported, outside of the event loop."""
        await self._litellm.warm_up()

    async def aclose(self) -> None:
        """Close what is shared, once every upstream is closed."""
        await self._litellm.aclose()
