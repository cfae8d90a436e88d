"""Claude Platform on AWS: Anthropic's own Messages, in a workspace that a header names, with AWS' keys and signatures."""

from collections.abc import Sequence
from typing import ClassVar

from strict_vendors.known.anthropic import Anthropic
from strict_vendors.known.bedrock import VENDOR as BEDROCK
from strict_vendors.known.foundry import with_key
from strict_vendors.vendor import Refused, Request

# lib/aws/_client.py of Anthropic's SDK 2.14 for Python, and the page: "a required anthropic-workspace-id header"; read
# on 2026-11-30.
_PAGE = "https://docs.aws.amazon.com/claude-platform/latest/userguide/making-requests.html"


class VENDOR(Anthropic):
    """One region: its key as Anthropic's own API takes one, or a signature for its own service."""

    name = "claude_aws"
    base = "/v1"
    key = "claude-aws-strict-vendor"
    access_key: ClassVar[str] = BEDROCK.access_key
    pages: ClassVar[Sequence[str]] = (*Anthropic.pages, _PAGE)

    def admit(self, request: Request) -> None:
        """Refuse a request without a workspace, its key or a signature, or with an unknown beta."""
        headers = request.headers
        said = headers.get("authorization", "")
        signed = f"Credential={self.access_key}/" in said and "/aws-external-anthropic/aws4_request" in said
        # As a bearer's, as the SDK sends it: platform.claude.com/docs/en/api/versioning, 2026-10-21.
        if not signed and self.key not in {headers.get("x-api-key"), said.removeprefix("Bearer ")}:
            raise Refused(401, "invalid x-api-key", kind="authentication_error", rule="key", page=_PAGE)
        if not headers.get("anthropic-workspace-id"):
            said = "anthropic-workspace-id: header is required"
            raise Refused(400, said, kind="invalid_request_error", rule="workspace", page=_PAGE)
        super().admit(with_key(request, self.key))
