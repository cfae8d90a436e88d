"""The APIs that are routed and failed over but not raced: what each is called, where it is, what it must be told."""

from collections.abc import Mapping

import msgspec

from gateway.errors import InvalidRequest
from gateway.fleet.fleet import Fleet
from gateway.ingress.admission import JSON, Client
from gateway.prompt_classes import MeasuredApi
from gateway.settings.model_names import ModelKind, understood
from providers.catalog import Api

FORM = "multipart/form-data"


class RelayedApi(msgspec.Struct, frozen=True, kw_only=True):
    """One API."""

    endpoint: MeasuredApi  # in the ledger
    path: str  # at the provider
    api: Api  # that a deployment must have
    demands: Mapping[str, str] = {}  # fields that must be there, other names of them after a bar, and what they are
    takes: tuple[str, ...] = (JSON,)
    kind: ModelKind | None = None  # of the models that are asked where a request names none; None: it must name one
    is_text: bool = True  # what it is sent and answers has text's price, as far as tokens are reported
    estimates: bool = False  # what it is sent is all text, so that its tokens can be guessed
    takes_extra_body: bool = True


EMBEDDINGS = RelayedApi(
    endpoint=MeasuredApi.EMBEDDINGS,
    path="embeddings",
    api="embeddings",
    demands={"input": "a string, or an array of strings or tokens"},
    estimates=True,
)
MODERATIONS = RelayedApi(
    endpoint=MeasuredApi.MODERATIONS,
    path="moderations",
    api="moderations",
    demands={"input": "a string, or an array of strings or parts"},
    kind="moderation",
    estimates=True,
)
RERANK = RelayedApi(
    endpoint=MeasuredApi.RERANK,
    path="rerank",
    api="rerank",
    demands={"query": "the text to rank the documents by", "documents": "an array of strings or objects"},
)
SPEECH = RelayedApi(
    endpoint=MeasuredApi.SPEECH,
    path="audio/speech",
    api="audio",
    demands={"input": "the text to speak"},
    is_text=False,
)
TRANSCRIPTIONS = RelayedApi(
    endpoint=MeasuredApi.TRANSCRIPTIONS,
    path="audio/transcriptions",
    api="audio",
    demands={"file": "the audio to transcribe"},
    takes=(FORM,),
)
TRANSLATIONS = RelayedApi(
    endpoint=MeasuredApi.TRANSLATIONS,
    path="audio/translations",
    api="audio",
    demands={"file": "the audio to translate"},
    takes=(FORM,),
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
COUNT_TOKENS = RelayedApi(
    endpoint=MeasuredApi.COUNT_TOKENS,
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
