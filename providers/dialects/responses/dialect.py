"""Responses as one of the dialects."""

from providers.dialects.dialect import AnswerFormat, Dialect, Pivoting, RequestFormat
from providers.dialects.expected import json_format_within, openai_tools
from providers.dialects.parameters import ParameterNames, SystemPrompt
from providers.dialects.responses.answers import ENDING, ResponseGathering, events_of_answer
from providers.dialects.responses.continuing import ResponseContinuing
from providers.dialects.responses.errors import failure, numbered
from providers.dialects.responses.events import read_event
from providers.dialects.responses.request_from_chat import from_chat
from providers.dialects.responses.request_to_chat import to_chat
from providers.dialects.responses.stream_from_chat import FromChat
from providers.dialects.responses.stream_to_chat import ToChat
from providers.dialects.responses.texts import texts
from providers.dialects.responses.thoughts import without_translated_thoughts

RESPONSES = Dialect(
    name="responses",
    path="responses",
    endpoint="responses",
    requests=RequestFormat(
        prompt="input",
        reading_order=("tools", "instructions", "input", "prompt"),
        parameters=ParameterNames(
            answer_limits=("max_output_tokens",),
            known=frozenset(
                {"metadata", "parallel_tool_calls", "reasoning", "service_tier", "temperature", "text"}
                | {"top_logprobs", "top_p", "user"}
            ),
        ),
        system=SystemPrompt("instructions", lambda text: {"type": "text", "text": text}),
        effort="reasoning.effort",
        decoded=frozenset({"include", "metadata", "reasoning", "text", "tool_choice", "tools"}),
        essential=frozenset({"conversation", "previous_response_id", "prompt"}),
        json_formats={"text": json_format_within},
        tools={"tools": openai_tools},
        without_foreign_thoughts=without_translated_thoughts,
    ),
    answers=AnswerFormat(
        read_event=read_event,
        texts=texts,
        events_of_answer=events_of_answer,
        gathering=ResponseGathering,
        ending=ENDING,
        failure=failure,
        numbered=numbered,
        cut_short=frozenset({"max_output_tokens"}),
        refusals=frozenset({"content_filter"}),
    ),
    continuing=ResponseContinuing(),
    pivoting=Pivoting(
        to_chat=to_chat,
        from_chat=lambda fields, _: from_chat(fields),  # models do not differ
        stream_to_chat=lambda _: ToChat(),  # passes errors on, and raises none
        stream_from_chat=lambda asked, _: FromChat(asked),
    ),
)
