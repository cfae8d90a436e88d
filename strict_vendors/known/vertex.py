"""Vertex AI: Claude by ``rawPredict`` and ``streamRawPredict``, the model in the address and the version in the body."""

from collections.abc import Sequence
from typing import Any, ClassVar

from strict_vendors.known.anthropic import VERSIONS, Anthropic
from strict_vendors.vendor import Refused, Reply, Request, Route

# lib/vertex/_client.py of Anthropic's SDK 2.14 for Python, and the page; read on 2026-11-29.
_PAGE = "https://platform.claude.com/docs/en/build-with-claude/claude-models-on-google-cloud/google-managed"
_MODELS = "/publishers/anthropic/models"
_KNOWN = ("vertex-2023-10-16", *VERSIONS)


class VENDOR(Anthropic):
    """One location of a project; a key is a token of Google's."""

    name = "vertex"
    base = "/v1/projects/p1/locations/europe-west4"
    key = "ya29.strict-vendor"
    pages: ClassVar[Sequence[str]] = (*Anthropic.pages, _PAGE)

    def routes(self) -> Sequence[Route]:
        """Return the addresses of its predictions."""
        return [
            ("POST", f"{self.base}{_MODELS}/count-tokens:rawPredict", self._count),
            ("POST", f"{self.base}{_MODELS}/{{model}}:rawPredict", self._whole),
            ("POST", f"{self.base}{_MODELS}/{{model}}:streamRawPredict", self._streamed),
        ]

    def admit(self, request: Request) -> None:
        """Refuse a request without a token."""
        if request.headers.get("authorization") != f"Bearer {self.key}":
            said = (
                "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other"
            )
            raise Refused(
                401, f"{said} valid authentication credential.", kind="UNAUTHENTICATED", rule="key", page=_PAGE
            )

    def _count(self, request: Request) -> Reply:
        return self.count(as_anthropics(request, _KNOWN, request.body.get("model", "")))

    def _whole(self, request: Request) -> Reply:
        if request.body.get("stream"):
            raise _refused("stream: rawPredict does not stream", "stream at rawPredict")
        return self.speak(as_anthropics(_without_model(request), _KNOWN, request.named["model"]))

    def _streamed(self, request: Request) -> Reply:
        if request.body.get("stream") is not True:
            raise _refused("stream: must be true for streamRawPredict", "stream")
        return self.speak(as_anthropics(_without_model(request), _KNOWN, request.named["model"]))


def as_anthropics(request: Request, versions: Sequence[str], model: str) -> Request:
    """Return a request as Anthropic's own API has it; one without a version that is known is refused."""
    body: dict[str, Any] = dict(request.body)
    version = body.pop("anthropic_version", None)
    if version is None:
        raise _refused("anthropic_version: Field required", "version")
    if version not in versions:
        raise _refused(f'anthropic_version: "{version}" is not a valid version', "version")
    headers = {**request.headers, "anthropic-version": version if version in VERSIONS else "2023-06-01"}
    if betas := body.pop("anthropic_beta", None):
        headers["anthropic-beta"] = ",".join(betas)
    body["model"] = model.partition("@")[0]
    return Request(request.method, request.path, headers, request.query, body, request.named)


def _without_model(request: Request) -> Request:
    if "model" in request.body:
        raise _refused("model: Extra inputs are not permitted", "model in the body")
    return request


def _refused(message: str, rule: str) -> Refused:
    return Refused(400, message, kind="invalid_request_error", rule=rule, page=_PAGE)
