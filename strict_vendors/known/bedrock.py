"""Amazon Bedrock's runtime: Converse and its stream, as strict as the service's description and its errors."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from strict_vendors.apis import bound_thoughts, converse
from strict_vendors.caches import Caches, Used
from strict_vendors.rules import bedrock as rules
from strict_vendors.script import Asked, Broken, tokens_of
from strict_vendors.shapes import faults
from strict_vendors.vendor import Refused, Reply, Request, Route, Vendor

Json = dict[str, Any]

_KINDS = {
    400: "ValidationException", 403: "AccessDeniedException", 404: "ResourceNotFoundException",
    424: "ModelErrorException", 429: "ThrottlingException", 500: "InternalServerException",
    503: "ServiceUnavailableException",
}  # fmt: skip


class VENDOR(Vendor):
    """Bedrock, in one region; it takes its own keys, and signatures that name its access key."""

    name = "bedrock"
    base = ""
    key = "bedrock-api-key-strict"
    access_key: ClassVar[str] = "AKIASTRICTVENDOR0000"  # what a signature must name; it is not checked further
    pages: ClassVar[Sequence[str]] = (rules.SERVICE, rules.TABLE, rules.PROFILES, rules.CLAUDE, rules.KEYS)

    def __init__(self, seed: str = "", account: str = "") -> None:
        super().__init__(seed, account)
        self.caches = Caches()
        self.dropped: list[bound_thoughts.Dropped] = []  # thoughts that were sent, and that no model was shown

    def routes(self) -> Sequence[Route]:
        """Return the addresses of Converse."""
        return [
            ("POST", "/model/{model*}/converse", self._converse),
            ("POST", "/model/{model*}/converse-stream", self._stream),
        ]

    def admit(self, request: Request) -> None:
        """Refuse a request with neither a key nor a signature."""
        given = request.headers.get("authorization", "")
        if given != f"Bearer {self.key}" and f"Credential={self.access_key}/" not in given:
            self.refuse_key(given)

    def refuse_key(self, given: str) -> None:
        """Refuse who has no right to ask."""
        said = (
            "Authentication failed: Please make sure your API Key is valid."
            if given.startswith("Bearer ")
            else "The security token included in the request is invalid."
            if given
            else "Missing Authentication Token"
        )
        raise Refused(403, said, rule="key", page=rules.KEYS)

    def refuse_path(self, request: Request) -> Reply:
        """Refuse an address that it does not have."""
        raise Refused(404, "Unable to determine service/operation name to be authorized", rule="path")

    def refusal(self, refused: Refused) -> Reply:
        """Return a refusal in AWS' shape."""
        kind = refused.kind or _KINDS.get(refused.status, "ValidationException")
        headers = {
            "x-amzn-errortype": f"{kind}:http://internal.amazon.com/coral/com.amazon.bedrock/",
            "x-amzn-requestid": self.ids.next("", 36),
        }
        name = "Message" if refused.rule == "key" else "message"
        return Reply({name: refused.message}, refused.status, headers)

    def broken(self, broken: Broken) -> Refused:
        """Return a failure that the text asked for."""
        said = "Too many requests, please wait before trying again." if broken.status == 429 else "The server failed."
        return Refused(broken.status, said, rule="as asked for")

    def parsed(self, body: bytes) -> Any:
        """Return the JSON of a body."""
        try:
            return super().parsed(body)
        except Refused:
            raise Refused(
                400, "The request body is not valid JSON.", kind="SerializationException", rule="json"
            ) from None

    def _converse(self, request: Request) -> Reply:
        given = self.given(self._asked(request, stream=False))
        return Reply(
            converse.whole(given, self.ids, self._used(request), self._sign(request)),
            headers=self._headers(),
            breaks=given.cut,
        )

    def _stream(self, request: Request) -> Reply:
        given = self.given(self._asked(request, stream=True))
        frames = converse.frames(given, self.ids, self._used(request), self._sign(request))
        kind = "application/vnd.amazon.eventstream"
        return Reply(blocks=frames, headers=self._headers(), breaks=given.cut, content_type=kind)

    def _sign(self, request: Request) -> Callable[[str], str]:
        model, _ = rules.find(request.named["model"])
        own = model.own if model is not None else ""
        return partial(converse.signature, body=request.body, model=own, account=self.account)

    def _used(self, request: Request) -> Used:
        return self.caches.used(request.named["model"], list(converse.blocks_to_cache(request.body)))

    def _headers(self) -> dict[str, str]:
        return {"x-amzn-requestid": self.ids.next("", 36)}

    def _asked(self, request: Request, *, stream: bool) -> Asked:
        body, name = request.body, request.named["model"]
        if found := list(faults(rules.request_shape(), body)):
            kind = "SerializationException" if all(each.kind == "type" for each in found) else None
            raise Refused(
                400,
                converse.described(found),
                kind=kind,
                rule=f"field {found[0].kind}",
                page=rules.CONSTRAINTS,
                param=found[0].field,
            )
        model = self._known(name)
        for said, rule, page in (
            *converse.wrong_order(body),
            *converse.wrong_blocks(body),
            *converse.wrong_for(model, body, streams=stream),
        ):
            raise Refused(400, said, rule=rule, page=page)
        self.dropped += converse.dropped(body, model, self.account)
        if tokens_of(body) > model.context:
            said = "The model returned the following errors: Input is too long for requested model."
            raise Refused(400, said, rule="context", page=rules.TOO_LONG)
        return converse.read(body, name, model, stream=stream)

    def _known(self, name: str) -> rules.BedrockModel:
        model, by_profile = rules.find(name)
        if model is None:
            raise Refused(400, "The provided model identifier is invalid.", rule="model", page=rules.PROFILES)
        if model.needs_profile and not by_profile:
            raise Refused(
                400,
                f"Invocation of model ID {name} with on-demand throughput isn\u2019t supported. Retry your request with"
                " the ID or ARN of an inference profile that contains this model.",
                rule="profile",
                page=rules.PROFILES,
            )
        return self.sized(model)
