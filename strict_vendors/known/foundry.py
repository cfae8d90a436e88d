"""Microsoft Foundry: Claude in Messages, at a resource of the customer's, by deployments named as the models."""

from collections.abc import Sequence
from typing import ClassVar

from strict_vendors.known.anthropic import Anthropic
from strict_vendors.vendor import Refused, Request

# lib/foundry.py of Anthropic's SDK 2.14 for Python, and the page; read on 2026-11-29.
_PAGE = "https://platform.claude.com/docs/en/build-with-claude/claude-in-microsoft-foundry"


class VENDOR(Anthropic):
    """A Foundry resource: ``x-api-key`` or ``api-key``, or a token of Entra's."""

    name = "foundry"
    base = "/anthropic/v1"
    key = "foundry-strict-vendor"
    pages: ClassVar[Sequence[str]] = (*Anthropic.pages, _PAGE)

    def admit(self, request: Request) -> None:
        """Refuse a request without its key, or with an unknown beta."""
        headers = request.headers
        token = headers.get("authorization", "").removeprefix("Bearer ")
        if self.key not in {headers.get("x-api-key"), headers.get("api-key"), token}:
            said = "Access denied due to invalid subscription key or wrong API endpoint."
            raise Refused(401, said, kind="authentication_error", rule="key", page=_PAGE)
        super().admit(with_key(request, self.key))


def with_key(request: Request, key: str) -> Request:
    """Return a request as it is asked of Anthropic itself."""
    return Request(
        request.method, request.path, {**request.headers, "x-api-key": key}, request.query, request.body, request.named
    )
