"""The list of APIs with routing and failover but without races: names, paths and required fields."""

from collections.abc import Mapping

import msgspec

from gateway.errors import InvalidRequest
from gateway.fleet.fleet import Fleet
from gateway.ingress.admission import JSON, Client
from gateway.prompt_classes import MeasuredApi
from gateway.settings.model_names import ModelKind, parsed_name
from providers.catalog import Api

FORM = "multipart/form-data"


class RelayedApi(msgspec.Struct, frozen=True, kw_only=True):
    """One API."""

    endpoint: MeasuredApi  # as named in the ledger
    path: str  # at the provider
    api: Api  # that a deployment must support
    demands: Mapping[str, str] = {}  # required field → what it should contain; alternative names are separated by a bar
    takes: tuple[str, ...] = (JSON,)
    kind: ModelKind | None = None  # of the default models, if a request names none; None: the model is required
    is_text: bool = True  # input and output are text, so a text price applies to the reported tokens
    estimates: bool = False  # the input is text, so that its tokens can be estimated
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
    takes_extra_body=False,  # it accepts only few of the fields that can be set for answers
)


def default_model(api: RelayedApi, fleet: Fleet, client: Client) -> str:
    """Return the model for a request that names none: the only configured one for this API.

    Models are recognised by their names; if no name matches, by having a deployment with this API.

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
        if api.kind in {parsed_name(each.model).kind for each in model.deployments.values()}
        or parsed_name(model.name).kind == api.kind
    ]
    found = named or [model.name for model in open_]
    if api.kind is not None and len(found) == 1:
        return found[0]
    hint = f"name one of {', '.join(found)}" if found else "name one of GET /v1/models"
    raise InvalidRequest(f"'model' is missing: {hint}", param="model")
