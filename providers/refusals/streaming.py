"""Words of refusals about streams, and about the usage at their ends."""

import re

from providers.refusals.blame import is_within_answer
from providers.refusals.errors import UpstreamError
from providers.refusals.named_fields import param_of
from providers.refusals.refused_fields import LONGEST, NO_VALUE, NOUN

# ``stream_options`` is refused. Without this field some servers send no usage, others send usage all the same
# (earendil-works/pi/pull/596, anomalyco/opencode/pull/35446, openkursar/hello-halo/issues/237).
# A client's tool may have this name. So the words must call the name a parameter, or say that it is not supported
# ("Unknown parameter: 'stream_options'", "stream_options is not supported").
OF_USAGE = re.compile(
    rf"\b{NOUN}(?: in object| supplied)?\W{{1,4}}(?:body\.)?(?:stream_options|include_usage)\b"
    rf"|{NO_VALUE}(?<![.\w\]])(?:body\.)?(?:stream_options(?:[.\]]include_usage)?|include_usage)['\"`]?:?"
    rf" (?:{NOUN} |(?:is |are )?(?:not (?:supported|allowed|permitted|available|enabled|recogni[sz]ed)"
    r"|only |un[ksr]\w+|extra (?:inputs|fields)))"
    r"|(?:not|n't) support(?: the)? ['\"`]?(?:stream_options|include_usage)\b"
    r"|loc['\"]: ?[\[(]['\"]body['\"], ?['\"]stream_options['\"]",
    re.IGNORECASE,
)

# Streaming is refused, always or with a parameter: Groq (``response_format``), Bedrock (tools), llama.cpp
# (``logprobs``), OpenAI (organizations that are not verified, formats of sounds), vLLM (``best_of``).
_STREAM = r"(?<![\w./-])stream(?:ed|ing|s)?(?![\w/-])"
_NOT = (
    r"(?:\bnot\b|n['\u2019]t\b|\bcannot\b|\bunable\b|\bonly\b|\bmust\b|\bno such\b|incompatible|unsupported|unavailable"
    r"|unknown|unrecogni[sz]ed|invalid|disabled|disallowed|forbidden)"
)
_OF_STREAMING = re.compile(
    rf"{_NOT}[^.;!?\n]{{0,80}}{_STREAM}|{_STREAM}[^.;!?\n]{{0,80}}{_NOT}",
    re.IGNORECASE,
)
_REFUSING_STREAMS = frozenset({400, 403, 404, 405, 422, 501})  # HTTP statuses


def refuses_to_stream(error: UpstreamError) -> bool:
    """Whether an error refuses to stream the answer, or to stream it with a parameter of the request."""
    if error.status not in _REFUSING_STREAMS and not (error.status is None and is_within_answer(error)):
        return False
    return _OF_STREAMING.search(error.said[:LONGEST]) is not None or param_of(error.body)[0] == "stream"
