"""Completions as one of the dialects. It is not translated: a raw prompt has no counterpart in messages."""

from providers.dialects.chat.answers import ENDING, failure
from providers.dialects.chat.repairs import repairs_of_completions
from providers.dialects.completions.answers import CompletionGathering, events_of_answer
from providers.dialects.completions.continuing import CompletionContinuing
from providers.dialects.completions.events import read_event
from providers.dialects.completions.texts import texts
from providers.dialects.dialect import AnswerFormat, Dialect, RequestFormat
from providers.dialects.parameters import ParameterNames

_CHATS_ALONE = frozenset(  # all others, also those of vendors, are known in both
    {"metadata", "modalities", "parallel_tool_calls", "reasoning_effort", "response_format", "service_tier", "store"}
    | {"tool_choice", "tools", "top_logprobs", "verbosity", "web_search_options"}
)

COMPLETIONS = Dialect(
    name="completions",
    path="completions",
    endpoint="completions",
    untranslated="a raw prompt has no faithful translation",
    requests=RequestFormat(
        prompt="prompt",
        reading_order=("prompt",),
        choices="n",
        parameters=ParameterNames(
            answer_limits=("max_tokens",),
            has_default_limit=True,  # of 16 tokens
            unknown=_CHATS_ALONE,
        ),
        decoded=frozenset({"logit_bias", "stop", "stream_options"}),
        takes_quirks=True,
    ),
    answers=AnswerFormat(
        read_event=read_event,
        texts=texts,
        events_of_answer=events_of_answer,
        gathering=CompletionGathering,
        ending=ENDING,
        failure=failure,
        cut_short=frozenset({"length"}),
        refusals=frozenset({"content_filter"}),
        repairs=repairs_of_completions,
    ),
    continuing=CompletionContinuing(),
    continues_by_itself=True,
)
