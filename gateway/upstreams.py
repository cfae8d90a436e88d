"""Opens upstreams from providers' settings and the catalog."""

from collections.abc import Sequence

from gateway.settings.provider import ProviderSettings
from providers.catalog import Vendor
from providers.exchange import Upstream
from providers.http.dialing import TlsContexts
from providers.litellm_library import LiteLLM
from providers.opening import open_upstream


class Upstreams:
    """Opens upstreams, which share the litellm library and the TLS context."""

    def __init__(self) -> None:
        self._litellm = LiteLLM()
        self._tls = TlsContexts()

    def open(
        self, name: str, settings: ProviderSettings, vendor: Vendor | None, secrets: Sequence[str] = ()
    ) -> Upstream:
        """Return the upstream of provider ``name``, not yet connected.

        ``secrets``: further ones, besides the provider's own, to be masked in messages.

        Raises:
            ValueError: neither the settings nor the vendor's row has a base URL.

        """
        return open_upstream(
            name,
            vendor,
            self._litellm,
            self._tls,
            kind=settings.kind,
            base_url=settings.base_url,
            api_keys=[key.get_secret_value() for key in settings.keys],
            key_names=settings.key_names,
            organization=settings.organization,
            headers={key: value.get_secret_value() for key, value in settings.headers.items()},
            query=settings.query,
            versions=settings.http_version,
            omits_finish_reason=settings.omits_finish_reason,
            secrets=secrets,
        )

    async def warm_up(self) -> None:
        """Import litellm outside the event loop."""
        await self._litellm.warm_up()

    async def aclose(self) -> None:
        """Close what is shared, after every upstream is closed."""
        await self._litellm.aclose()
