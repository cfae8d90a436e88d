"""What a model at a provider can do. Unknown is None, and excludes no deployment."""

import msgspec


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The capabilities of a deployment. None: unknown, so it is tried."""

    tools: bool | None = None  # can call functions
    json_schema: bool | None = None  # can answer in JSON by a schema
    vision: bool | None = None  # accepts images
    audio: bool | None = None  # accepts audio
    documents: bool | None = None  # accepts PDF
    reasoning: bool | None = None  # can reason before it answers
    context_tokens: int | None = None  # the longest prompt; with some vendors the longest prompt and answer together
    max_output_tokens: int | None = None  # the longest answer


UNKNOWN = Capabilities()
