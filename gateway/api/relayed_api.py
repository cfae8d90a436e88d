"""The facts of an API with answers that pass unread: path at providers, required fields, and what is paid for."""

from collections.abc import Mapping

import msgspec

from gateway.core.prompt_classes import MeasuredApi
from gateway.http import JSON
from gateway.settings import ModelKind
from providers import Api
from providers.dialects import DIALECTS

FORM = "multipart/form-data"


class RelayedApi(msgspec.Struct, frozen=True, kw_only=True):
    """One API."""

    endpoint: MeasuredApi  # as named in the ledger
    path: str  # at the provider
    api: Api  # the API in a deployment's ``apis``
    demands: Mapping[str, str] = {}  # required field → its expected content; alternative names are separated by a bar
    takes: tuple[str, ...] = (JSON,)
    kind: ModelKind | None = None  # of the default models, for a request without a model; None: the model is required
    is_text: bool = True  # input and output are text, so a text price applies to the reported tokens
    by_character: str | None = None  # the field with the characters to pay for, whether or not tokens are reported
    by_query: bool = False  # some vendors are paid by the request, others by its tokens
    estimates: bool = False  # the input is text, for which tokens can be estimated
    takes_extra_body: bool = True
    # Requests of up to so many bytes are answered soon, and asking twice changes nothing: late calls are hedged.
    short_bytes: int = 0
    is_indexed: bool = False  # answers are kept beside earlier ones, so all must be made by the same model
    begins: Mapping[str, bytes] = {}  # the first character of a field's JSON: [ or {
    instead: str = ""  # another way for a client to get such an answer from a deployment without the API; "": none
    by_summary: bool = False  # a model without the API is asked for a summary
    gives: bool = False  # later requests may use names in its answers

    @property
    def of(self) -> str:
        """The API whose requests may name the same things stored by a provider."""
        return self.api if self.api in DIALECTS else self.path

    @property
    def counts(self) -> bool:
        """Whether the tokens of a prompt are counted, in the API that would answer the prompt."""
        return self.endpoint is MeasuredApi.COUNT_TOKENS

    def is_short(self, size: int) -> bool:
        """Return whether two providers may be asked to answer ``size`` bytes: such calls are hedged or raced."""
        return size <= self.short_bytes


def counting_api(api: Api, path: str) -> RelayedApi:
    """Return the API at ``path`` for counting the tokens of prompts for ``api``."""
    return RelayedApi(
        endpoint=MeasuredApi.COUNT_TOKENS,
        path=path,
        api=api,
        is_text=False,  # counting costs nothing
        takes_extra_body=False,  # the API accepts only a few of the fields of answers
    )
