"""Three strict vendors with any model, any field and one key for all: what cases are about is whether fields arrive.

All else they refuse as OpenAI, Anthropic and Google do: types, bounds, ids, schemas, orders of a history.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from msgspec import structs

from strict_vendors import (
    Asked,
    Broken,
    Fault,
    Given,
    GoogleModel,
    Ids,
    Model,
    Refused,
    Reply,
    Request,
    Route,
    Shape,
    Vendor,
    as_data,
)
from strict_vendors.known.anthropic import Anthropic
from strict_vendors.known.google import Google
from strict_vendors.known.openai import OpenAI
from tests.clients.upstream import completions
from tests.clients.upstream.answer import answer, mumbles

Json = dict[str, Any]

KEY = "upstream-key"
FORBIDDEN_KEY = "upstream-forbidden-key"  # known, and good for nothing
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_ENDLESS = 2**40  # tokens
_FUTURE = {"x_future": {"a_field": ["nobody", "knows"]}}


class Lenient(Vendor):
    """What the three have in common."""

    key = KEY

    def __init__(self, server: str) -> None:
        """``server`` is the name of its upstream: two of them answer alike but for that."""
        super().__init__(server)
        self._server = server

    def admit(self, request: Request) -> None:
        """Refuse a request without the key, and one whose key is good for nothing."""
        if any(FORBIDDEN_KEY in value for value in request.headers.values()):
            raise Refused(403, "this key may not do this", rule="key")
        super().admit(request)

    def faults_in(self, shape: Shape, body: Any) -> Iterator[Fault]:
        """Let fields pass that no table has."""
        return (fault for fault in super().faults_in(shape, body) if fault.kind != "unknown")

    def given(self, asked: Asked) -> Given:
        """Answer by words; ids are the same for the same question."""
        super().given(asked)
        self.rest_s = 1.0 if mumbles(asked, self._server) else self.rest_s
        self.ids = Ids(hashlib.sha256("\n".join(turn.text for turn in asked.turns).encode()).hexdigest())
        return answer(asked, self._server)

    def broken(self, broken: Broken) -> Refused:
        """Return a failure that the text asked for, in words that a case can look for."""
        headers: Mapping[str, str] = {"retry-after": "1"} if broken.status == 429 else {}
        return Refused(broken.status, str(broken), rule="as asked for", headers=headers)


class AnyOpenAI(Lenient, OpenAI):
    """OpenAI, which tells thoughts in chat too, and completes prompts."""

    thoughts: ClassVar[str | None] = "reasoning_content"

    def routes(self) -> list[Route]:
        """Return the routes of completions too."""
        return [*super().routes(), ("POST", f"{self.base}/completions", self._go_on)]

    def model_of(self, name: str, api: str) -> Model:
        """Return a model of any name but one."""
        if name == "missing-model":
            raise self.no_model(name)
        return Model(name, context=_ENDLESS, longest=_ENDLESS, efforts=_EFFORTS, usual="none")

    def whole(self, answered: Json) -> Json:
        """Add a field of the future, and whose answer it is."""
        return {**answered, "system_fingerprint": f"fp_{self._server}", **_FUTURE}

    def chunk(self, chunk: Json) -> Json:
        """Add them to each chunk."""
        return self.whole(chunk)

    def _go_on(self, request: Request) -> Reply:
        self.model_of(request.body["model"], "completions")
        asked = completions.read(request.body)
        given = self.given(asked)
        head = self.whole(
            {"id": self.ids.next("cmpl-"), "object": "text_completion", "created": 1, "model": asked.model}
        )
        if asked.stream:
            return Reply(blocks=as_data(completions.events(head, asked, given)), breaks=given.cut)
        return Reply(completions.whole(head, asked, given), breaks=given.cut)


class AnyAnthropic(Lenient, Anthropic):
    """Anthropic."""

    def model_of(self, name: str) -> Model:
        """Return a model of any name but one."""
        if name == "missing-model":
            return super().model_of(name)
        efforts, marks = ("enabled", "adaptive"), frozenset({"effort", *_EFFORTS})
        return Model(name, context=_ENDLESS, longest=_ENDLESS, efforts=efforts, marks=marks)


class AnyGoogle(Lenient, Google):
    """Google, whose models think where their thoughts are to be told."""

    def model_of(self, name: str) -> GoogleModel:
        """Return a model of any name but one."""
        return super().model_of(name) if name == "missing-model" else GoogleModel()

    def given(self, asked: Asked) -> Given:
        """Return an answer with thoughts only where they are to be told."""
        config = asked.body.get("generationConfig", {}).get("thinkingConfig", {})
        return super().given(structs.replace(asked, thinks=bool(config.get("includeThoughts"))))
