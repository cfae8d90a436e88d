"""The litellm library in this process, for providers that are not OpenAI-compatible: imported at its first use.

Importing litellm takes seconds and about 165 MB, its first call half a second more: ``LiteLLM.warm_up`` does both in a
thread before such a deployment enters a race. ``LiteLLM`` is shared by a process, and created and closed by the app.
"""

import asyncio
import contextlib
import importlib
import logging
import os
from collections.abc import Iterable
from typing import Any
from urllib.request import getproxies_environment

from providers.http import is_direct


class LiteLLM:
    """The litellm library in one process: imported once, in a thread, without log output and without telemetry."""

    def __init__(self) -> None:
        self._loading: asyncio.Task[Any] | None = None
        self._prefixes: set[str] = set()
        self._rehearsed: frozenset[str] | None = None  # the prefixes of the last rehearsal

    @property
    def imported(self) -> Any | None:
        """The library, None until it is imported."""
        loading = self._loading
        if loading is None or not loading.done() or loading.cancelled() or loading.exception() is not None:
            return None
        return loading.result()

    def serves(self, prefix: str) -> None:
        """Add a provider, so that ``warm_up`` includes the modules that litellm loads for it."""
        self._prefixes.add(prefix)

    async def module(self) -> Any:
        """Return the imported library. Cancelling one caller while it loads does not affect the others."""
        if self._loading is None or (self._loading.done() and self._loading.exception() is not None):
            self._loading = asyncio.create_task(asyncio.to_thread(_import_litellm), name="import-litellm")
        return await asyncio.shield(self._loading)

    async def warm_up(self) -> None:
        """Import the library and do the work of its first call, outside of the event loop."""
        litellm = await self.module()
        prefixes = frozenset(self._prefixes)
        if prefixes != self._rehearsed:
            self._rehearsed = prefixes
            await asyncio.to_thread(_rehearse, litellm, prefixes)

    async def aclose(self) -> None:
        """Close litellm's kept connections. Called when no request is running."""
        if self._loading is None:
            return
        try:
            litellm = await self._loading
        except ImportError:
            return
        await litellm.close_litellm_async_clients()
        worker = importlib.import_module("litellm.litellm_core_utils.logging_worker")
        await worker.GLOBAL_LOGGING_WORKER.stop()


def _import_litellm() -> Any:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # otherwise it downloads its price table
    os.environ.setdefault("LITELLM_MODE", "PRODUCTION")  # otherwise it loads a .env file into the environment
    litellm: Any = importlib.import_module("litellm")
    litellm.suppress_debug_info = True  # otherwise it prints hints to standard output
    litellm.telemetry = False
    litellm.DEFAULT_MAX_RETRIES = 0  # for embeddings, a max_retries of 0 counts as not set
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # its errors are raised, and the gateway logs them
    importlib.import_module("providers.upstreams.litellm_errors")
    clients: Any = importlib.import_module("litellm.llms.custom_httpx.http_handler")
    # All of litellm's clients use this class.
    clients.TCPConnector = importlib.import_module("providers.upstreams.litellm_connector").DroppingConnector
    transport: Any = importlib.import_module("litellm.llms.custom_httpx.aiohttp_transport").LiteLLMAiohttpTransport
    transport._proxy_from_env = _proxy_of  # noqa: SLF001 - it has no other way in
    return litellm


def _proxy_of(_transport: object, url: Any) -> str | None:
    """Return the proxy for ``url``, as litellm chooses it, but with NO_PROXY as the gateway reads it."""
    proxies = getproxies_environment()
    named = proxies.get(url.scheme) or proxies.get("all")
    if not named or is_direct(url.scheme, url.host, url.port):
        return None
    return named if "://" in named else f"http://{named}"


def _rehearse(litellm: Any, prefixes: Iterable[str]) -> None:
    """Run a call that litellm answers itself, and load each provider's module. Nothing is sent."""
    for prefix in prefixes:
        with contextlib.suppress(Exception):  # errors of a provider are reported at its first request
            litellm.get_supported_openai_params("unknown", custom_llm_provider=prefix)
    messages = [{"role": "user", "content": "Hello"}]
    for _ in litellm.completion(
        model="anthropic/claude-sonnet-4-5", messages=messages, mock_response="Hi", stream=True, api_key="unused"
    ):
        pass
