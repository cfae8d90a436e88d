"""The APIs whose answers pass unread: their paths at providers, what is required of a request, and how it is paid."""

import sys
from collections.abc import Mapping

import msgspec

from gateway.api.auth import JSON
from gateway.core.prompt_classes import MeasuredApi
from gateway.settings import ModelKind
from providers import Api
from providers.dialects import DIALECTS, RESPONSES

FORM = "multipart/form-data"


class RelayedApi(msgspec.Struct, frozen=True, kw_only=True):
    """One API."""

    endpoint: MeasuredApi  # as named in the ledger
    path: str  # at the provider
    api: Api  # that a deployment must support
    demands: Mapping[str, str] = {}  # required field → its expected content; alternative names are separated by a bar
    takes: tuple[str, ...] = (JSON,)
    kind: ModelKind | None = None  # of the default models, if a request names none; None: the model is required
    is_text: bool = True  # input and output are text, so a text price applies to the reported tokens
    by_character: str | None = None  # the field whose characters are paid for, whether or not tokens are reported
    by_query: bool = False  # some vendors are paid for each request, others for its tokens
    estimates: bool = False  # the input is text, so that its tokens can be estimated
    takes_extra_body: bool = True
    # Requests of up to so many bytes are answered soon, and asking twice changes nothing: late ones are hedged.
    short_bytes: int = 0
    is_indexed: bool = False  # its answers are kept beside earlier ones, so all must be made by the same model
    begins: Mapping[str, bytes] = {}  # how the JSON of a field begins: [ or {
    gives: bool = False  # later requests may name what its answers name

    @property
    def recalls(self) -> bool:
        """Whether its requests name earlier answers, which the gateway may know."""
        return self.api == RESPONSES.name

    @property
    def of(self) -> str:
        """The API whose requests may name what a provider stores as this one's do."""
        return self.api if self.api in DIALECTS else self.path

    def is_short(self, size: int) -> bool:
        """Whether an answer to a body of ``size`` bytes may be asked for twice, so that calls are hedged or raced."""
        return size <= self.short_bytes


_ANY_BYTES = sys.maxsize
_SHORT_SOUND_BYTES = 2**20  # of a file: about a minute

EMBEDDINGS = RelayedApi(
    endpoint=MeasuredApi.EMBEDDINGS,
    path="embeddings",
    api="embeddings",
    demands={"input": "a string, or an array of strings or tokens"},
    estimates=True,
    short_bytes=_ANY_BYTES,
    is_indexed=True,
)
MODERATIONS = RelayedApi(
    endpoint=MeasuredApi.MODERATIONS,
    path="moderations",
    api="moderations",
    demands={"input": "a string, or an array of strings or parts"},
    kind="moderation",
    estimates=True,
    short_bytes=_ANY_BYTES,
)
RERANK = RelayedApi(
    endpoint=MeasuredApi.RERANK,
    path="rerank",
    api="rerank",
    demands={"query": "the text to rank the documents by", "documents": "an array of strings or objects"},
    by_query=True,
    short_bytes=_ANY_BYTES,
)
# In beta: the shapes are those of openai 3.57.0 and google-genai 3.6.1 for Python, read on 2026-11-26. Neither is made
# into the other: an answer of probabilities is the vendor's own.
DECISIONS = RelayedApi(
    endpoint=MeasuredApi.DECISIONS,
    path="decisions",
    api="decisions",
    demands={"input": "a string, or an array of messages", "questions": "an array of questions"},
    begins={"questions": b"["},
    estimates=True,
    short_bytes=_ANY_BYTES,
)
GOOGLE_DECISIONS = RelayedApi(
    endpoint=MeasuredApi.DECISIONS,
    path="decisions",
    api="google_decisions",
    demands={"input": "a string, or parts", "questions": "an object with a question for each name"},
    begins={"questions": b"{"},
    estimates=True,
    short_bytes=_ANY_BYTES,
)
COMPACT = RelayedApi(
    endpoint=MeasuredApi.COMPACT,
    path="responses/compact",
    api="responses",
    takes_extra_body=False,  # it accepts only a few of the fields for answers
    gives=True,
)
SPEECH = RelayedApi(
    endpoint=MeasuredApi.SPEECH,
    path="audio/speech",
    api="audio",
    demands={"input": "the text to speak"},
    is_text=False,
    by_character="input",
    short_bytes=_ANY_BYTES,
)
TRANSCRIPTIONS = RelayedApi(
    endpoint=MeasuredApi.TRANSCRIPTIONS,
    path="audio/transcriptions",
    api="audio",
    demands={"file": "the audio to transcribe"},
    takes=(FORM,),
    short_bytes=_SHORT_SOUND_BYTES,
)
TRANSLATIONS = RelayedApi(
    endpoint=MeasuredApi.TRANSLATIONS,
    path="audio/translations",
    api="audio",
    demands={"file": "the audio to translate"},
    takes=(FORM,),
    short_bytes=_SHORT_SOUND_BYTES,
)
GENERATIONS = RelayedApi(
    endpoint=MeasuredApi.GENERATIONS,
    path="images/generations",
    api="images",
    demands={"prompt": "a description of the image"},
    kind="image",
)
EDITS = RelayedApi(
    endpoint=MeasuredApi.EDITS,
    path="images/edits",
    api="images",
    demands={"image|image[]|images": "the image or images to edit", "prompt": "a description of the change"},
    takes=(FORM, JSON),
    kind="image",
)
VARIATIONS = RelayedApi(
    endpoint=MeasuredApi.VARIATIONS,
    path="images/variations",
    api="images",
    demands={"image": "the image to vary"},
    takes=(FORM,),
    kind="image",
)


def counting_api(api: Api, path: str) -> RelayedApi:
    """Return the API at ``path`` that counts the tokens of prompts for ``api``."""
    return RelayedApi(
        endpoint=MeasuredApi.COUNT_TOKENS,
        path=path,
        api=api,
        is_text=False,  # counting costs nothing
        takes_extra_body=False,  # it accepts only a few of the fields for answers
    )
