"""Microsoft Foundry with access tokens of Microsoft Entra ID.

The library azure-identity finds the credentials (an application's variables, a managed or workload identity, the az
command's) and trades them for tokens of about an hour. It is imported in the thread that fetches the first one.
"""

import importlib
from typing import Any

from providers.keys import FetchedCredentials
from providers.refusals import redact
from providers.upstreams.http_upstream import Server
from providers.upstreams.tokens import TokenUpstream

_SCOPE = "https://ai.azure.com/.default"  # lib/foundry.md of Anthropic's SDK 2.14, read on 2026-11-29
_ADVICE = "set AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET, or run: az login"


class AzureUpstream(TokenUpstream):
    """A ``TokenUpstream`` with tokens of Entra's."""

    def __init__(self, server: Server, **options: Any) -> None:
        """``options`` are those of ``TokenUpstream``, without the source."""
        super().__init__(server, _Tokens(), failed=_message_of, **options)


class _Tokens:
    """The ``Source`` of tokens: one of Azure's credentials."""

    def __init__(self) -> None:
        self._credential: Any = None

    def has_changed(self) -> bool:
        """Return no: the library itself reads the files of a workload's identity again."""
        return False

    def forget(self) -> None:
        """Look for the credentials again."""
        self._credential = None

    def fetch(self) -> FetchedCredentials[str]:
        """Return a token."""
        if self._credential is None:
            identity: Any = importlib.import_module("azure.identity")
            self._credential = identity.DefaultAzureCredential()
        token = self._credential.get_token(_SCOPE)
        return FetchedCredentials(token.token, float(token.expires_on))


def _message_of(error: Exception) -> str:
    """Return the failure as a message for the operator."""
    if isinstance(error, ImportError):
        return "needs a key of its resource, or azure-identity: `holeshot check` says how to install it"
    words = " ".join(str(error).split())[:300]
    return redact(f"could not get a token of Microsoft's ({words}); {_ADVICE}", ())
