"""Azure OpenAI: OpenAI's models as deployments, with an ``api-version``, its own errors, and filters in its answers.

Its base URL is the resource's: ``/openai/deployments/NAME/…?api-version=…`` and ``/openai/v1/…`` are below it. Each
model is deployed under its own name, and as ``my-NAME``.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import msgspec

from strict_vendors.known.openai import OpenAI
from strict_vendors.models import Model
from strict_vendors.vendor import Json, Refused, Reply, Request, Route, as_data

_REFERENCE = "https://learn.microsoft.com/azure/ai-services/openai/reference"
_LIFECYCLE = "https://learn.microsoft.com/azure/ai-services/openai/api-version-deprecation"
_VERSION = re.compile(r"20\d\d-\d\d-\d\d(-preview)?")
_FIRST, _FOR_THINKING, _FOR_RESPONSES = "2024-02-01", "2024-12-01-preview", "2025-03-01-preview"
_SAFE = {"filtered": False, "severity": "safe"}
_FILTERS = dict.fromkeys(("hate", "self_harm", "sexual", "violence"), _SAFE)


class Azure(OpenAI):
    """A resource of Azure OpenAI."""

    name = "azure"
    base = ""
    key = "azure-strict-vendor"
    pages: ClassVar[Sequence[str]] = (_REFERENCE, _LIFECYCLE)

    def routes(self) -> Sequence[Route]:
        """Return the routes of deployments, and those of the newer surface."""
        below = "/openai/deployments/{deployment}"
        newer = [
            (method, path.replace(self.base, "/openai/v1", 1), handler) for method, path, handler in super().routes()
        ]
        return [
            ("POST", f"{below}/chat/completions", self._deployed(self.complete)),
            ("POST", f"{below}/embeddings", self._deployed(self.embed)),
            ("POST", "/openai/responses", self._versioned(self.respond)),
            ("GET", "/openai/responses/{id}", lambda asked: Reply(self.kept.response(asked.named["id"]).body)),
            *newer,
        ]

    def hears(self, path: str) -> bool:
        """It has no WebSocket here."""
        return False

    def admit(self, request: Request) -> None:
        """Refuse a request without the key, in either header."""
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.key not in {request.headers.get("api-key"), bearer}:
            raise Refused(  # https://github.com/SciSharp/BotSharp/issues/386
                401,
                "Access denied due to invalid subscription key or wrong API endpoint. Make sure to provide a valid key for"
                " an active subscription and use a correct regional API endpoint for your resource.",
                code="401",
                rule="key",
                page="https://github.com/SciSharp/BotSharp/issues/386",
            )

    def refuse_path(self, request: Request) -> Reply:
        """Refuse an address that it does not have."""
        raise Refused(404, "Resource not found", code="404", rule="path", page=_REFERENCE)

    def refusal(self, refused: Refused) -> Reply:
        """Return a refusal: what the front door says has a code and a message, no more."""
        if refused.code in _FRONT_DOOR:
            return Reply({"error": {"code": refused.code, "message": refused.message}}, refused.status, refused.headers)
        return super().refusal(refused)

    def no_model(self, name: str) -> Refused:
        """Refuse a deployment that does not exist."""
        return Refused(
            404,
            "The API deployment for this resource does not exist. If you created the deployment within the last 5 minutes,"
            " please wait a moment and try again.",
            code="DeploymentNotFound",
            rule="deployment",
            page="https://github.com/chatboxai/chatbox/issues/861",
        )

    def not_in_api(self, model: Model, api: str) -> Refused:
        """Refuse a model of another API."""
        operation = {"chat": "chatCompletion", "responses": "responses"}[api]
        return Refused(
            400,
            f"The {operation} operation does not work with the specified model, {model.name}. Please choose different model"
            " and try again. You can learn more about which models can be used with each operation here:"
            " https://go.microsoft.com/fwlink/?linkid=2197993.",
            code="OperationNotSupported",
            rule="only in another API",
            page="https://github.com/langchain-ai/langchain-azure/issues/228",
        )

    def model_of(self, name: str, api: str) -> Model:
        """Return what is deployed under a name."""
        return super().model_of(name.removeprefix("my-"), api)

    def whole(self, answer: Json) -> Json:
        """Add what its filters found."""
        for choice in answer["choices"]:
            choice["content_filter_results"] = _FILTERS
        return {**answer, "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": _FILTERS}]}

    def complete(self, request: Request) -> Reply:
        """Answer a chat completion: a stream begins with what its filters found of the prompt."""
        reply = super().complete(request)
        if reply.blocks is None:
            return reply
        found = {"prompt_index": 0, "content_filter_results": _FILTERS}
        empty = {"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": [found]}
        return msgspec.structs.replace(reply, blocks=[*as_data([empty], end=b""), *reply.blocks])

    def _deployed(self, handler: Callable[[Request], Reply]) -> Callable[[Request], Reply]:
        """Return a handler that takes the model from the address."""

        def handle(request: Request) -> Reply:
            version = self._version_of(request)
            name = request.named["deployment"].removeprefix("my-")
            model = self.models.find(name)
            if model is None:
                raise self.no_model(name)
            if model.thinks and version < _FOR_THINKING:
                raise _too_old(f"Model {name} is enabled only for api versions {_FOR_THINKING} and later")
            body: Any = request.body
            return handler(
                msgspec.structs.replace(request, body={**body, "model": name} if isinstance(body, dict) else body)
            )

        return handle

    def _versioned(self, handler: Callable[[Request], Reply]) -> Callable[[Request], Reply]:
        def handle(request: Request) -> Reply:
            if self._version_of(request) < _FOR_RESPONSES:
                raise _too_old(f"Azure OpenAI Responses API is enabled only for api-version {_FOR_RESPONSES} and later")
            return handler(request)

        return handle

    @staticmethod
    def _version_of(request: Request) -> str:
        version = request.query.get("api-version", "")
        if not _VERSION.fullmatch(version) or version < _FIRST:
            raise Refused(404, "Resource not found", code="404", rule="api-version", page=_LIFECYCLE)
        return version


_FRONT_DOOR = {"401", "404", "DeploymentNotFound", "OperationNotSupported", "BadRequest"}


def _too_old(message: str) -> Refused:
    """Return the refusal of an old version (https://github.com/chatboxai/chatbox/issues/1745)."""
    page = "https://github.com/chatboxai/chatbox/issues/1745"
    return Refused(400, message, code="BadRequest", rule="api-version", page=page)


VENDOR = Azure
