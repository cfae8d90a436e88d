"""What a model at a provider can do, as far as it is known: unknown is None, and excludes nobody."""

import msgspec


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What may be asked of a deployment. None: unknown, so ask it."""

    tools: bool | None = None  # calls functions
    json_schema: bool | None = None  # answers by a schema
    vision: bool | None = None  # takes pictures
    audio: bool | None = None  # takes sound
    documents: bool | None = None  # takes PDF
    reasoning: bool | None = None  # can think before it answers
    context_tokens: int | None = None  # the longest prompt; of vendors who tell prompt and answer as one, both together
    max_output_tokens: int | None = None  # the longest answer


UNKNOWN = Capabilities()
