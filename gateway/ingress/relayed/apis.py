"""The APIs that are routed and failed over but not raced: what each is called, where it is, what it must be told."""

from collections.abc import Mapping

import msgspec

from gateway.errors import InvalidRequest
from gateway.fleet import Fleet
from gateway.ingress.admission import JSON, Client
from gateway.ingress.body import prompt_class
from gateway.settings.model_names import ModelKind, understood
from gateway.steering.constants import OTHER_CLASSES_FROM
from providers.catalog import Api

FORM = "multipart/form-data"


class RelayedApi(msgspec.Struct, frozen=True, kw_only=True):
    """One API."""

    number: (
        int  # from 1, and from 10 where it says nothing of speed; see prompt_class. Never to be changed: rows have it
    )
    endpoint: str  # in the ledger
    path: str  # at the provider
    api: Api  # that a deployment must have
    demands: Mapping[str, str] = {}  # fields that must be there, other names of them after a bar, and what they are
    takes: tuple[str, ...] = (JSON,)
    kind: ModelKind | None = None  # of the models that are asked where a request names none; None: it must name one
    is_text: bool = True  # what it is sent and answers has text's price, as far as tokens are reported
    estimates: bool = False  # what it is sent is all text, so that its tokens can be guessed
    takes_extra_body: bool = True

    def prompt_class(self, size: int) -> int:
        """Return the class of a request of ``size`` bytes.

        Classes 0 to 2 are of prompts; the same model may be asked for both, and how soon a picture comes says nothing
        of the first token of an answer.
        """
        return self.number * OTHER_CLASSES_FROM + prompt_class(size)


EMBEDDINGS = RelayedApi(
    number=1,
    endpoint="embeddings",
    path="embeddings",
    api="embeddings",
    demands={"input": "a string, or an array of strings or tokens"},
    estimates=True,
)
MODERATIONS = RelayedApi(
    number=2,
    endpoint="moderations",
    path="moderations",
    api="moderations",
    demands={"input": "a string, or an array of strings or parts"},
    kind="moderation",
    estimates=True,
)
RERANK = RelayedApi(
    number=3,
    endpoint="rerank",
    path="rerank",
    api="rerank",
    demands={"query": "the text to rank the documents by", "documents": "an array of strings or objects"},
)
SPEECH = RelayedApi(
    number=4,
    endpoint="audio.speech",
    path="audio/speech",
    api="audio",
    demands={"input": "the text to speak"},
    is_text=False,
)
TRANSCRIPTIONS = RelayedApi(
    number=5,
    endpoint="audio.transcriptions",
    path="audio/transcriptions",
    api="audio",
    demands={"file": "the audio to transcribe"},
    takes=(FORM,),
)
TRANSLATIONS = RelayedApi(
    number=6,
    endpoint="audio.translations",
    path="audio/translations",
    api="audio",
    demands={"file": "the audio to translate"},
    takes=(FORM,),
)
GENERATIONS = RelayedApi(
    number=7,
    endpoint="images.generations",
    path="images/generations",
    api="images",
    demands={"prompt": "a description of the image"},
    kind="image",
)
EDITS = RelayedApi(
    number=8,
    endpoint="images.edits",
    path="images/edits",
    api="images",
    demands={"image|image[]|images": "the image or images to edit", "prompt": "a description of the change"},
    takes=(FORM, JSON),
    kind="image",
)
VARIATIONS = RelayedApi(
    number=9,
    endpoint="images.variations",
    path="images/variations",
    api="images",
    demands={"image": "the image to vary"},
    takes=(FORM,),
    kind="image",
)
COUNT_TOKENS = RelayedApi(
    number=10,
    endpoint="messages.count_tokens",
    path="messages/count_tokens",
    api="messages",
    is_text=False,  # counting costs nothing
    takes_extra_body=False,  # it knows hardly any of the fields that an answer may be asked with
)


def default_model(api: RelayedApi, fleet: Fleet, client: Client) -> str:
    """Return the model to be asked where a request names none: the only one that is configured for this.

    By their names, that is; where none is called like it, the only one with a deployment that has the API at all.

    Raises:
        InvalidRequest: there is none, or several.

    """
    open_ = [
        model
        for model in fleet.models.values()
        if (client.models is None or model.name in client.models)
        and any(api.api in each.apis for each in model.deployments.values())
    ]
    named = [
        model.name
        for model in open_
        if api.kind in {understood(each.model).kind for each in model.deployments.values()}
        or understood(model.name).kind == api.kind
    ]
    found = named or [model.name for model in open_]
    if api.kind is not None and len(found) == 1:
        return found[0]
    hint = f"name one of {', '.join(found)}" if found else "name one of GET /v1/models"
    raise InvalidRequest(f"'model' is missing: {hint}", param="model")
