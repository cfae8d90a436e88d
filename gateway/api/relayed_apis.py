"""The rows of the APIs with answers that pass unread: an API with bodies of JSON is one row, and no more code."""

import sys

import msgspec

from gateway.api.endpoint import Description, Endpoint
from gateway.api.relayed_api import FORM, RelayedApi
from gateway.core.prompt_classes import MeasuredApi
from gateway.http import JSON
from providers.dialects import RESPONSES

_ANY_BYTES = sys.maxsize
_SHORT_SOUND_BYTES = 2**20  # of a file: about a minute
# The media types of answers other than JSON alone.
SOUND = ("audio/*", "text/event-stream")
SUBTITLES = (JSON, "text/*", "application/x-subrip")

EMBEDDINGS = Endpoint(
    routes=("/v1/embeddings",),
    relayed=RelayedApi(
        endpoint=MeasuredApi.EMBEDDINGS,
        path="embeddings",
        api="embeddings",
        demands={"input": "a string, or an array of strings or tokens"},
        estimates=True,
        short_bytes=_ANY_BYTES,
        is_indexed=True,
    ),
    description=Description(id="createEmbedding", summary="Embeddings", answer="Embeddings"),
)
MODERATIONS = Endpoint(
    routes=("/v1/moderations",),
    relayed=RelayedApi(
        endpoint=MeasuredApi.MODERATIONS,
        path="moderations",
        api="moderations",
        demands={"input": "a string, or an array of strings or parts"},
        kind="moderation",
        estimates=True,
        short_bytes=_ANY_BYTES,
    ),
    description=Description(id="createModeration", summary="Moderations"),
)
RERANK = Endpoint(
    routes=("/v1/rerank",),
    relayed=RelayedApi(
        endpoint=MeasuredApi.RERANK,
        path="rerank",
        api="rerank",
        demands={"query": "the text to rank the documents by", "documents": "an array of strings or objects"},
        by_query=True,
        short_bytes=_ANY_BYTES,
    ),
    description=Description(id="rerank", summary="Documents ranked for a query"),
)
RERANK_V2 = msgspec.structs.replace(
    RERANK,
    routes=("/v2/rerank",),
    description=Description(id="rerankV2", summary="The same, where Cohere's second version has it"),
)
# In beta: the shapes are those of openai 3.57.0 and google-genai 3.6.1 for Python, read on 2026-11-26. Neither is
# translated into the other: an answer of probabilities is the vendor's own.
DECISIONS = Endpoint(
    routes=("/v1/decisions",),
    relayed=RelayedApi(
        endpoint=MeasuredApi.DECISIONS,
        path="decisions",
        api="decisions",
        demands={"input": "a string, or an array of messages", "questions": "an array of questions"},
        begins={"questions": b"["},
        estimates=True,
        short_bytes=_ANY_BYTES,
    ),
    description=Description(id="createDecision", summary="Questions answered with probabilities"),
)
GOOGLE_DECISIONS = Endpoint(
    routes=("/v1beta/decisions",),
    relayed=RelayedApi(
        endpoint=MeasuredApi.DECISIONS,
        path="decisions",
        api="google_decisions",
        demands={"input": "a string, or parts", "questions": "an object with a question for each name"},
        begins={"questions": b"{"},
        estimates=True,
        short_bytes=_ANY_BYTES,
    ),
    description=Description(
        id="createGoogleDecision", summary="The same, as Google has it", error_schema="GeminiError"
    ),
)
COMPACT = Endpoint(
    routes=("/v1/responses/compact",),
    relayed=RelayedApi(
        endpoint=MeasuredApi.COMPACT,
        path="responses/compact",
        api="responses",
        takes_extra_body=False,  # the API accepts only a few of the fields of answers
        by_summary=True,
        gives=True,
    ),
    recalls=RESPONSES.recalling,
    description=Description(id="compactResponse", summary="A conversation made shorter"),
)
SPEECH = Endpoint(
    routes=("/v1/audio/speech",),
    relayed=RelayedApi(
        endpoint=MeasuredApi.SPEECH,
        path="audio/speech",
        api="audio",
        demands={"input": "the text to speak"},
        is_text=False,
        by_character="input",
        short_bytes=_ANY_BYTES,
    ),
    description=Description(id="createSpeech", summary="Text to speech", content=SOUND),
)
TRANSCRIPTIONS = Endpoint(
    routes=("/v1/audio/transcriptions",),
    relayed=RelayedApi(
        endpoint=MeasuredApi.TRANSCRIPTIONS,
        path="audio/transcriptions",
        api="audio",
        demands={"file": "the audio to transcribe"},
        takes=(FORM,),
        short_bytes=_SHORT_SOUND_BYTES,
    ),
    description=Description(id="createTranscription", summary="Speech to text", content=SUBTITLES),
)
TRANSLATIONS = Endpoint(
    routes=("/v1/audio/translations",),
    relayed=RelayedApi(
        endpoint=MeasuredApi.TRANSLATIONS,
        path="audio/translations",
        api="audio",
        demands={"file": "the audio to translate"},
        takes=(FORM,),
        short_bytes=_SHORT_SOUND_BYTES,
    ),
    description=Description(id="createTranslation", summary="Speech to English text", content=SUBTITLES),
)
GENERATIONS = Endpoint(
    routes=("/v1/images/generations",),
    relayed=RelayedApi(
        endpoint=MeasuredApi.GENERATIONS,
        path="images/generations",
        api="images",
        demands={"prompt": "a description of the image"},
        kind="image",
    ),
    description=Description(id="createImage", summary="Pictures from a description"),
)
EDITS = Endpoint(
    routes=("/v1/images/edits",),
    relayed=RelayedApi(
        endpoint=MeasuredApi.EDITS,
        path="images/edits",
        api="images",
        demands={"image|image[]|images": "the image or images to edit", "prompt": "a description of the change"},
        takes=(FORM, JSON),
        kind="image",
    ),
    description=Description(id="createImageEdit", summary="Pictures changed as described"),
)
VARIATIONS = Endpoint(
    routes=("/v1/images/variations",),
    relayed=RelayedApi(
        endpoint=MeasuredApi.VARIATIONS,
        path="images/variations",
        api="images",
        demands={"image": "the image to vary"},
        takes=(FORM,),
        kind="image",
    ),
    description=Description(id="createImageVariation", summary="Variations of a picture"),
)

RELAYED = (
    EMBEDDINGS,
    MODERATIONS,
    RERANK,
    RERANK_V2,
    DECISIONS,
    GOOGLE_DECISIONS,
    COMPACT,
    SPEECH,
    TRANSCRIPTIONS,
    TRANSLATIONS,
    GENERATIONS,
    EDITS,
    VARIATIONS,
)
