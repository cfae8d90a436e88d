"""The Gemini API: generateContent and interactions, as strict as https://ai.google.dev/api says and its errors show."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from msgspec import structs

from strict_vendors.apis import gemini, interactions
from strict_vendors.caches import Prefixes
from strict_vendors.rules import google as rules
from strict_vendors.rules import interactions as steps
from strict_vendors.script import Asked, Broken, tokens_of
from strict_vendors.shapes import faults
from strict_vendors.vendor import Refused, Reply, Request, Route, Vendor

Json = dict[str, Any]

_STATUS = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
}  # fmt: skip
_MOST_STOPS = 5
# https://ai.google.dev/gemini-api/docs/api-errors, read on 2026-11-30, up to 429; of the others the SDK's tests have some
# (tests/interactions/test_retry_options.py of google-genai 3.6.1), read on 2026-11-29.
_WORDS = {
    400: "invalid_request", 401: "authentication", 403: "permission_denied", 404: "not_found",
    429: "rate_limit_exceeded", 500: "internal", 503: "unavailable",
}  # fmt: skip


class Google(Vendor):
    """Google, by its own API."""

    name = "google"
    base = "/v1beta"
    key = "AIza-strict-vendor"
    pages: ClassVar[Sequence[str]] = (
        rules.FIELDS,
        rules.SCHEMA,
        rules.SIGNATURES,
        rules.THINKING,
        rules.MODELS,
        rules.KEYS,
        steps.PAGE,
    )

    def __init__(self, seed: str = "", account: str = "") -> None:
        super().__init__(seed, account)
        self.prefixes = Prefixes(least=4096)  # of 3.x: ai.google.dev/gemini-api/docs/caching, read on 2026-11-29
        self.stored: list[Request] = []  # what is kept with its answer, for ``rules.STORED_DAYS``
        self.interactions: dict[str, interactions.Kept] = {}

    def routes(self) -> Sequence[Route]:
        """Return its addresses, which both of its versions have."""
        return [
            route
            for version in ("v1beta", "v1")
            for route in (
                ("POST", f"/{version}/models/{{model}}:generateContent", self._generate),
                ("POST", f"/{version}/models/{{model}}:streamGenerateContent", self._stream),
                ("POST", f"/{version}/models/{{model}}:countTokens", self._count),
                ("GET", f"/{version}/models", self._models),
                ("GET", f"/{version}/models/{{model}}", self._model),
                ("POST", f"/{version}/interactions", self._interact),
                ("GET", f"/{version}/interactions/{{id}}", self._interaction),
                ("DELETE", f"/{version}/interactions/{{id}}", self._delete),
                ("POST", f"/{version}/interactions/{{id}}/cancel", self._cancel),
            )
        ]

    def admit(self, request: Request) -> None:
        """Refuse a request without the key: in a header, or in the address."""
        given = request.headers.get("x-goog-api-key") or request.query.get("key", "")
        if given != self.key:
            self.refuse_key(given)

    def refuse_key(self, given: str) -> None:
        """Refuse a key: a wrong one with 400, a missing one with 403."""
        if given:
            raise _Refused(
                400,
                "API key not valid. Please pass a valid API key.",
                rule="key",
                page=rules.KEYS,
                details=[
                    {
                        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                        "reason": "API_KEY_INVALID",
                        "domain": "googleapis.com",
                        "metadata": {"service": "generativelanguage.googleapis.com"},
                    }
                ],
            )
        raise Refused(
            403,
            "Method doesn't allow unregistered callers (callers without established identity). Please use API Key or"
            " other form of API consumer identity to call this API.",
            rule="key",
            page=rules.KEYS,
        )

    def refuse_path(self, request: Request) -> Reply:
        """Refuse an address that it does not have, with no body."""
        raise Refused(404, f"no such address: {request.method} {request.path}", rule="path")

    def refusal(self, refused: Refused) -> Reply:
        """Return a refusal in Google's shape."""
        error: Json = {
            "code": refused.status,
            "message": refused.message,
            "status": _STATUS.get(refused.status, "UNKNOWN"),
        }
        if isinstance(refused, _Refused):
            error["details"] = refused.details
        if self.seen and "/interactions" in self.seen[-1].path:
            error = {"message": refused.message, "code": _WORDS.get(refused.status, "internal")}
        if refused.rule == "path":
            return Reply(b"", refused.status, content_type="text/html")
        return Reply({"error": error}, refused.status, content_type="application/json")

    def broken(self, broken: Broken) -> Refused:
        """Return a failure that the text asked for."""
        return Refused(broken.status, "The model is overloaded. Please try again later.", rule="as asked for")

    def parsed(self, body: bytes) -> Any:
        """Return the JSON of a body."""
        try:
            return super().parsed(body)
        except Refused:
            raise Refused(
                400, "Invalid JSON payload received. Unexpected end of string. Expected a value.", rule="json"
            ) from None

    def _generate(self, request: Request) -> Reply:
        asked = self._asked(request, stream=False)
        self._store(request)
        given = self.given(asked)
        return Reply(gemini.whole(asked, given, self.ids, self._cached(asked)), breaks=given.cut)

    def _cached(self, asked: Asked) -> int:
        return self.prefixes.read(asked.model, gemini.blocks_to_cache(asked.body))

    def _stream(self, request: Request) -> Reply:
        asked = self._asked(request, stream=True)
        self._store(request)
        given = self.given(asked)
        events = request.query.get("alt") == "sse"
        blocks = gemini.blocks(gemini.stream(asked, given, self.ids, self._cached(asked)), events=events)
        return Reply(
            blocks=blocks, breaks=given.cut, content_type="text/event-stream" if events else "application/json"
        )

    def _interact(self, request: Request) -> Reply:
        body = request.body if isinstance(request.body, dict) else {}
        for fault in faults(steps.CREATE, body):
            path = ".".join(map(str, fault.path))
            said = f"Unknown parameter '{path}'." if fault.kind == "unknown" else f"Invalid value at '{path}'."
            raise Refused(400, said, rule=f"field {fault.kind}", page=steps.PAGE, param=fault.field)
        previous = body.get("previous_interaction_id")
        kept = None if previous is None else self._kept(previous)
        before = [] if kept is None else [*kept.before, *kept.body["steps"]]
        given = [*before, *interactions.steps_of(body.get("input", []))]
        signs = body.get("model") in rules.KNOWN and rules.KNOWN[body["model"]].signs
        for said, rule, page in interactions.wrong(body, given, signs=signs):
            raise Refused(400, said, rule=rule, page=page)
        self._model_or_agent(body)
        asked = interactions.read(body, given)
        asked = structs.replace(asked, turns=interactions.joined(asked.turns))
        self._store(request)
        said_now = self.given(asked)
        answer = interactions.whole(asked, said_now, self.ids)
        if body.get("store") is not False:
            self.interactions[answer["id"]] = interactions.Kept(answer, given)
        if body.get("background") and not asked.stream:
            return Reply({**answer, "status": "in_progress", "steps": [], "usage": None})
        if not asked.stream:
            return Reply(answer, breaks=said_now.cut)
        return Reply(blocks=interactions.stream(answer), breaks=said_now.cut, content_type="text/event-stream")

    def _model_or_agent(self, body: Json) -> None:
        if "agent" in body:
            if body["agent"] not in steps.AGENTS:
                raise Refused(404, f"Agent '{body['agent']}' not found.", rule="agent", page=steps.PAGE)
            return
        known = self.model_of(body["model"])
        if (tokens := tokens_of(body)) > known.context:
            said = f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({known.context})."
            raise Refused(400, said, rule="context", page=rules.TOO_LONG)

    def _kept(self, name: str) -> interactions.Kept:
        if name not in self.interactions:
            raise Refused(404, f"Interaction '{name}' not found.", rule="interaction not stored", page=steps.PAGE)
        return self.interactions[name]

    def _interaction(self, request: Request) -> Reply:
        kept = self._kept(request.named["id"])
        if request.query.get("stream") == "true":
            return Reply(blocks=interactions.stream(kept.body), content_type="text/event-stream")
        return Reply(kept.body)

    def _cancel(self, request: Request) -> Reply:
        return Reply({**self._kept(request.named["id"]).body, "status": "cancelled"})

    def _delete(self, request: Request) -> Reply:
        self._kept(request.named["id"])
        del self.interactions[request.named["id"]]
        return Reply({})

    def _store(self, request: Request) -> None:
        if request.body.get("store") is not False:
            self.stored.append(request)

    def _count(self, request: Request) -> Reply:
        body = gemini.normal(request.body)
        self._refuse_fields(body, rules.COUNT)
        self.model_of(request.named["model"])
        return Reply({"totalTokens": tokens_of(body)})

    def _models(self, request: Request) -> Reply:
        return Reply({"models": [rules.listed(name) for name in rules.KNOWN]})

    def _model(self, request: Request) -> Reply:
        self.model_of(request.named["model"])
        return Reply(rules.listed(request.named["model"]))

    def _asked(self, request: Request, *, stream: bool) -> Any:
        body = gemini.normal(request.body if isinstance(request.body, dict) else {})
        self._refuse_fields(body, rules.GENERATE)
        name = request.named["model"]
        known = self.model_of(name)
        for said, rule, page in (
            *gemini.wrong_schemas(body),
            *gemini.wrong_history(body, signs=known.signs, continues=known.continues),
        ):
            raise Refused(400, said, rule=rule, page=page)
        for said, rule, page in wrong_for(known, body.get("generationConfig", {}), body, name):
            raise Refused(400, said, rule=rule, page=page)
        return gemini.read(body, name, stream=stream)

    def _refuse_fields(self, body: Json, shape: Any) -> None:
        found = list(self.faults_in(shape, body))
        if not found:
            return
        said = [gemini.described(fault, body) for fault in found]
        violations = [
            {
                "field": gemini.place(fault.path[:-1] if fault.kind == "unknown" else fault.path, body),
                "description": words,
            }
            for fault, words in zip(found, said, strict=True)
        ]
        raise _Refused(
            400,
            "\n".join(said),
            rule=f"field {found[0].kind}",
            page=found[0].page or rules.UNKNOWN,
            param=found[0].field,
            details=[{"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": violations}],
        )

    def model_of(self, name: str) -> rules.GoogleModel:
        """Return what is known of a model."""
        if name not in rules.KNOWN:
            raise Refused(
                404,
                f"models/{name} is not found for API version v1beta, or is not supported for generateContent. Call"
                " ListModels to see the list of available models and their supported methods.",
                rule="model",
                page=rules.MODELS,
            )
        return self.sized(rules.KNOWN[name])


def wrong_for(known: rules.GoogleModel, config: Mapping[str, Any], body: Json, name: str) -> Iterator[gemini.Wrong]:
    """Yield what a model does not take."""
    if (tokens := tokens_of(body)) > known.context:
        said = f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({known.context})."
        yield said, "context", rules.TOO_LONG
    if not 1 <= config.get("maxOutputTokens", 1) <= known.longest:
        said = (
            f"Unable to submit request because it has a maxOutputTokens value of {config['maxOutputTokens']} but the"
            f" supported range is from 1 (inclusive) to {known.longest + 1} (exclusive). Update the value and try"
            " again."
        )
        yield said, "longest answer", rules.LONGEST
    if config.get("presencePenalty") or config.get("frequencyPenalty"):
        yield "Penalty is not enabled for this model", "penalty", rules.PENALTIES
    if not 1 <= config.get("candidateCount", 1) <= (1 if known.levels else 8):
        yield "Multiple candidates is not enabled for this model", "candidates", rules.SEVERAL
    if config.get("responseLogprobs") or config.get("logprobs"):
        yield f"Logprobs is not enabled for models/{name}", "log probabilities", rules.LOGPROBS
    if len(config.get("stopSequences", ())) > _MOST_STOPS:
        yield f"The number of stop sequences must be at most {_MOST_STOPS}.", "stop sequences", rules.FIELDS
    declared = any("functionDeclarations" in tool for tool in body.get("tools", ()))
    if declared and config.get("responseMimeType") == "application/json" and not known.json_with_tools:
        said = "Function calling with a response mime type: 'application/json' is unsupported"
        yield said, "tools and JSON", rules.JSON_AND_TOOLS
    if "responseSchema" in config and "responseJsonSchema" in config:
        yield "Only one of response_schema and response_json_schema may be set.", "two schemas", rules.FIELDS
    if ("responseSchema" in config or "responseJsonSchema" in config) and "responseMimeType" not in config:
        at = "* GenerateContentRequest.generation_config.response_schema"
        said = f"{at}: response_schema requires response_mime_type to be set\n"
        yield said, "schema without a type", rules.FIELDS
    calling = body.get("toolConfig", {}).get("functionCallingConfig", {})
    if calling.get("allowedFunctionNames") and calling.get("mode", "AUTO").upper() not in {"ANY", "VALIDATED"}:
        said = "Please set allowed_function_names only when function calling mode is ANY."
        yield said, "allowed functions", rules.ALLOWED
    if "cachedContent" in body and not known.caches:
        yield f"Explicit caching is not supported for models/{name}.", "explicit caching", rules.ARGON
    yield from _wrong_thinking(known, config.get("thinkingConfig", {}))


def _wrong_thinking(known: rules.GoogleModel, thinking: Mapping[str, Any]) -> Iterator[gemini.Wrong]:
    level, budget = thinking.get("thinkingLevel"), thinking.get("thinkingBudget")
    if level is not None and not known.levels:
        yield "Thinking level is not supported for this model.", "level of thinking", rules.LEVELS
    if level is not None and level.upper() == "MINIMAL" != known.least_level:
        said = (
            f"Thinking level {level.upper()} is not supported for this model. Please retry with other thinking level."
        )
        yield said, "level of thinking", rules.ARGON
    if level is not None and budget is not None:
        said = "You can only set only one of thinking budget and thinking level."
        yield said, "level and budget", rules.LEVEL_OR_BUDGET
    if budget is None or budget == -1 or known.budgets is None:
        return
    least, most = known.budgets
    if budget == 0 and not known.can_stop_thinking:
        yield "Budget 0 is invalid. This model only works in thinking mode.", "budget", rules.THINKING
    elif budget and not least <= budget <= most:
        said = f"The thinking budget {budget} is invalid. Please choose a value between {least} and {most}."
        yield said, "budget", rules.THINKING


class _Refused(Refused):
    def __init__(self, *told: Any, details: list[Json], **more: Any) -> None:
        super().__init__(*told, **more)
        self.details = details


VENDOR = Google
