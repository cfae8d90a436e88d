"""Amazon Bedrock's InvokeModel: Claude in Messages, the model in the address, betas in the body, frames around events."""

import base64
import json
from collections.abc import Sequence
from typing import ClassVar

from strict_vendors.apis.converse import frame
from strict_vendors.known.anthropic import VERSIONS, Anthropic
from strict_vendors.known.bedrock import VENDOR as BEDROCK
from strict_vendors.known.vertex import as_anthropics
from strict_vendors.vendor import Refused, Reply, Request, Route

# lib/bedrock/_client.py and _stream_decoder.py of Anthropic's SDK 2.14 for Python, and the pages; read on 2026-11-29.
_PAGE = "https://platform.claude.com/docs/en/build-with-claude/claude-on-amazon-bedrock-legacy"
_PARAMETERS = "https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-anthropic-claude-messages.html"
# "The provided model doesn't support counting tokens" is said of inference profiles (pydantic/pydantic-ai#4001), and a
# body without ``max_tokens`` is refused (anthropics/anthropic-sdk-python#1043); read on 2026-11-30.
_COUNTING = "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_CountTokens.html"
_KNOWN = ("bedrock-2023-05-31", *VERSIONS)


class VENDOR(Anthropic):
    """Bedrock's runtime in one region, for Claude alone; keys, refusals and signatures are those of its Converse."""

    name = "invoke"
    base = ""
    key = BEDROCK.key
    access_key: ClassVar[str] = BEDROCK.access_key
    pages: ClassVar[Sequence[str]] = (*Anthropic.pages, _PAGE, _PARAMETERS, _COUNTING)

    def routes(self) -> Sequence[Route]:
        """Return the addresses of InvokeModel."""
        return [
            ("POST", "/model/{model*}/invoke", self._whole),
            ("POST", "/model/{model*}/invoke-with-response-stream", self._streamed),
            ("POST", "/model/{model*}/count-tokens", self._counted),
        ]

    def admit(self, request: Request) -> None:
        """Refuse a request with neither a key nor a signature."""
        given = request.headers.get("authorization", "")
        if given != f"Bearer {self.key}" and f"Credential={self.access_key}/" not in given:
            said = "The security token included in the request is invalid."
            raise Refused(403, said, kind="UnrecognizedClientException", rule="key", page=_PAGE)

    def refusal(self, refused: Refused) -> Reply:
        """Return a refusal in AWS' shape."""
        kinds = {404: "ResourceNotFoundException", 429: "ThrottlingException", 500: "InternalServerException"}
        kind = refused.kind if refused.kind and refused.kind[0].isupper() else None
        headers = {"x-amzn-errortype": kind or kinds.get(refused.status, "ValidationException")}
        return Reply({"message": refused.message}, refused.status, headers)

    def _whole(self, request: Request) -> Reply:
        return self.speak(self._as_anthropics(request))

    def _streamed(self, request: Request) -> Reply:
        asked = self._as_anthropics(request)
        reply = self.speak(
            Request(asked.method, asked.path, asked.headers, asked.query, {**asked.body, "stream": True}, asked.named)
        )
        frames = [
            frame("chunk", {"bytes": base64.b64encode(block.split(b"data: ", 1)[1].strip()).decode()})
            for block in reply.blocks or ()
        ]
        return Reply(
            blocks=frames, breaks=reply.breaks, headers=reply.headers, content_type="application/vnd.amazon.eventstream"
        )

    def _counted(self, request: Request) -> Reply:
        try:
            body = json.loads(base64.b64decode(request.body["input"]["invokeModel"]["body"], validate=True))
        except (KeyError, TypeError, ValueError):
            raise Refused(400, "Malformed input request.", rule="body to count", page=_COUNTING) from None
        if "max_tokens" not in body:
            raise Refused(400, "max_tokens: Field required", rule="max_tokens to count", page=_COUNTING)
        if not request.named["model"].startswith("anthropic."):
            said = "The provided model doesn't support counting tokens."
            raise Refused(400, said, rule="model to count", page=_COUNTING)
        asked = self._as_anthropics(
            Request(request.method, request.path, request.headers, request.query, body, request.named)
        )
        counted = {name: value for name, value in asked.body.items() if name != "max_tokens"}
        reply = self.count(Request(asked.method, asked.path, asked.headers, asked.query, counted, asked.named))
        return Reply({"inputTokens": reply.body["input_tokens"]})

    def _as_anthropics(self, request: Request) -> Request:
        for name in ("model", "stream"):
            if name in request.body:
                said = f"Malformed input request: extraneous key [{name}] is not permitted, please reformat your input"
                raise Refused(400, f"{said} and try again.", rule=f"{name} in the body", page=_PARAMETERS)
        if "anthropic-beta" in request.headers and "anthropic_beta" not in request.body:
            raise Refused(400, "anthropic-beta: betas stand in the body", rule="betas", page=_PARAMETERS)
        name = request.named["model"]
        if "anthropic." not in name:
            raise Refused(400, "The provided model identifier is invalid.", rule="model", page=_PAGE)
        model = name.rpartition("anthropic.")[2].removesuffix(":0").removesuffix("-v1")
        return as_anthropics(request, _KNOWN, model)
