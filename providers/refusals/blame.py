"""Whether an error with a status that says nothing blames the request: of a server's own, or within an answer."""

import re

from providers.refusals.content import is_refused_by_filter
from providers.refusals.errors import UpstreamError, kinds
from providers.refusals.refused_fields import LONGEST
from providers.refusals.too_long import counts_too_many, is_too_long

# llama.cpp answers with 500 if the model's template refuses a history, or the model cannot see pictures
# (sipeed/picoclaw/issues/207, vllm-project/vllm/issues/17119, ggml-org/llama.cpp/issues/12947 and 15377).
_OF_REQUESTS = re.compile(
    r"Jinja Exception|jinja2?\.exceptions|TemplateError|^Failed to parse (?:messages|tools)"
    r"|\b(?:image|audio|video) input is not supported",
    re.IGNORECASE,
)

# An error within an answer may have no code, or a code that says nothing.
_WITHIN_ANSWERS = kinds(lambda facts: facts.may_refuse_within)
_NO_STATUS = (None, 200)  # the second: the answer's own
_STATUSES_WITHIN = frozenset({*_NO_STATUS, 400, 403, 404, 422, 500, 501})


def is_within_answer(error: UpstreamError) -> bool:
    """Whether an error within an answer may be a refusal of the request; the words of the error would show that."""
    return error.kind in _WITHIN_ANSWERS and error.status in _STATUSES_WITHIN


def blames_request(text: str) -> bool:
    """Whether an error with status 500 blames the request, and not the server."""
    return is_too_long(text) or _OF_REQUESTS.search(text[:LONGEST]) is not None


def blames_request_within(error: UpstreamError) -> bool:
    """Whether an error within an answer blames the request, whatever its code: for its length, or for its content."""
    if error.kind not in _WITHIN_ANSWERS:
        return False
    # Aggregators give any status to what their vendor said: 502 "Provider returned error".
    if is_too_long(error.said, error.names):
        return True
    if not is_within_answer(error):
        return False
    is_of_length = blames_request(error.said) or counts_too_many(error.said, error.findings.prompt_bytes)
    # With a code of the server's own fault a filter may have failed, and not refused.
    names = {name.lower() for name in error.names}
    return is_of_length or (error.status in _NO_STATUS and is_refused_by_filter(error.status, names, error.said))
