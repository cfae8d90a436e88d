"""The facts of an API whose answers pass unread: path at providers, required fields, and what is paid for."""

from collections.abc import Mapping

import msgspec

from gateway.api.json_body import JSON
from gateway.core.prompt_classes import MeasuredApi
from gateway.settings import ModelKind
from providers import Api
from providers.dialects import DIALECTS

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
    instead: str = ""  # what a client can ask for at a deployment that lacks it; "": nothing
    by_summary: bool = False  # at a model without it, whoever answers is asked for a summary
    gives: bool = False  # later requests may name what its answers name

    @property
    def of(self) -> str:
        """The API whose requests may name what a provider stores as this one's do."""
        return self.api if self.api in DIALECTS else self.path

    def is_short(self, size: int) -> bool:
        """Whether an answer to a body of ``size`` bytes may be asked for twice, so that calls are hedged or raced."""
        return size <= self.short_bytes


def counting_api(api: Api, path: str) -> RelayedApi:
    """Return the API at ``path`` that counts the tokens of prompts for ``api``."""
    return RelayedApi(
        endpoint=MeasuredApi.COUNT_TOKENS,
        path=path,
        api=api,
        is_text=False,  # counting costs nothing
        takes_extra_body=False,  # the API accepts only a few of the fields of answers
    )
