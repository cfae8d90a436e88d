"""Claude on Google Cloud, managed by Anthropic: Messages below a project and a workspace, with Google's tokens alone."""

from collections.abc import Sequence
from typing import ClassVar

from strict_vendors.known.anthropic import Anthropic
from strict_vendors.known.foundry import with_key
from strict_vendors.vendor import Refused, Request

# lib/google_cloud/_client.py of Anthropic's SDK 2.14 for Python, and its README: "it authenticates with Google
# credentials only"; read on 2026-11-30.
_PAGE = "https://platform.claude.com/docs/en/build-with-claude/claude-models-on-google-cloud/anthropic-managed"


class VENDOR(Anthropic):
    """One workspace of one project: a token in ``authorization``."""

    name = "claude_google"
    base = "/v1/projects/p/locations/global/workspaces/wrkspc_1/invoke/v1"
    key = "claude-google-strict-vendor"
    pages: ClassVar[Sequence[str]] = (*Anthropic.pages, _PAGE)

    def admit(self, request: Request) -> None:
        """Refuse a request without its token, with a key of Anthropic's, or with an unknown beta."""
        if "x-api-key" in request.headers or request.headers.get("authorization") != f"Bearer {self.key}":
            said = "Request had invalid authentication credentials. Expected OAuth 2 access token."
            raise Refused(401, said, kind="authentication_error", rule="key", page=_PAGE)
        super().admit(with_key(request, self.key))
