"""Chat as one of the dialects: the one into which all others are translated."""

from providers.dialects.chat.answers import ENDING, events_of_answer, failure
from providers.dialects.chat.continuing import ChatContinuing
from providers.dialects.chat.events import read_event
from providers.dialects.chat.gathering import ChatGathering
from providers.dialects.chat.plain import learned
from providers.dialects.chat.repairs import repairs_of
from providers.dialects.chat.texts import texts
from providers.dialects.dialect import AnswerFormat, Dialect, RequestFormat
from providers.dialects.expected import json_format, openai_tools
from providers.dialects.parameters import ParameterNames, SystemPrompt

CHAT = Dialect(
    name="chat",
    path="chat/completions",
    endpoint="chat.completions",
    requests=RequestFormat(
        prompt="messages",
        reading_order=("tools", "messages"),
        parameters=ParameterNames(answer_limits=("max_completion_tokens", "max_tokens")),
        system=SystemPrompt("messages", lambda text: {"role": "system", "content": text}),
        effort="reasoning_effort",
        choices="n",
        decoded=frozenset({"logit_bias", "metadata", "modalities", "response_format", "stop", "stream_options"})
        | {"tool_choice", "tools"},
        json_formats={"response_format": json_format},
        tools={"tools": openai_tools, "functions": openai_tools},  # functions: the deprecated name
        takes_quirks=True,
    ),
    answers=AnswerFormat(
        read_event=read_event,
        texts=texts,
        events_of_answer=events_of_answer,
        gathering=ChatGathering,
        ending=ENDING,
        failure=failure,
        cut_short=frozenset({"length", "MAX_TOKENS"}),  # Gemini writes it in capitals
        refusals=frozenset({"content_filter", "SAFETY", "RECITATION", "PROHIBITED_CONTENT"}),
        learned=learned,
        repairs=repairs_of,
    ),
    continuing=ChatContinuing(),
)
