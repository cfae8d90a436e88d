"""Messages as one of the dialects."""

from collections.abc import Iterator

import msgspec

from providers.dialects.dialect import AnswerFormat, Dialect, Pivoting, RequestFormat
from providers.dialects.expected import OfferedTool, json_format, json_format_within
from providers.dialects.habits import Habits
from providers.dialects.messages.answers import ENDING, MessageGathering, events_of_answer, failure
from providers.dialects.messages.continuing import MessageContinuing
from providers.dialects.messages.errors import error_body
from providers.dialects.messages.events import read_event
from providers.dialects.messages.habits import habits_of, of_messages
from providers.dialects.messages.request_from_chat import from_chat
from providers.dialects.messages.request_to_chat import to_chat
from providers.dialects.messages.stream_from_chat import FromChat
from providers.dialects.messages.stream_to_chat import ToChat
from providers.dialects.messages.texts import texts
from providers.dialects.messages.thoughts import without_unsigned_thoughts
from providers.dialects.parameters import ParameterNames, SystemPrompt
from providers.dialects.wording import Fields, Wording


class _Tool(msgspec.Struct):
    name: str | None = None
    input_schema: msgspec.Raw = msgspec.Raw()


_tools = msgspec.json.Decoder(list[_Tool] | None)


def _offered_tools(raw: msgspec.Raw) -> Iterator[OfferedTool]:
    """Yield the tools that have a name; their arguments must always match their schema."""
    for tool in _tools.decode(raw) or ():
        if tool.name is not None:
            yield OfferedTool(tool.name, bytes(tool.input_schema) or None, strict=True)


def _from_chat(fields: Fields, habits: Habits) -> Wording:
    own = of_messages(habits)
    return from_chat(
        fields,
        default_max_tokens=own.max_tokens,
        adaptive_thinking=own.adaptive_thinking,
        sampling=own.sampling,
    )


MESSAGES = Dialect(
    name="messages",
    path="messages",
    endpoint="messages",
    error_body=error_body,
    requests=RequestFormat(
        prompt="messages",
        reading_order=("tools", "system", "messages"),
        parameters=ParameterNames(
            answer_limits=("max_tokens",),
            # Its ``metadata`` is not the same as chat's.
            known=frozenset({"output_config", "stop_sequences", "temperature", "thinking", "top_k", "top_p"}),
            renamed={"stop": "stop_sequences"},
            lists=frozenset({"stop_sequences"}),
        ),
        system=SystemPrompt("system", lambda text: {"type": "text", "text": text}),
        effort="thinking",
        decoded=frozenset({"mcp_servers", "metadata", "output_config", "stop_sequences", "thinking"})
        | {"tool_choice", "tools"},
        json_formats={"output_format": json_format, "output_config": json_format_within},
        tools={"tools": _offered_tools},
        without_foreign_thoughts=without_unsigned_thoughts,
    ),
    answers=AnswerFormat(
        read_event=read_event,
        texts=texts,
        events_of_answer=events_of_answer,
        gathering=MessageGathering,
        ending=ENDING,
        failure=failure,
        keep_alive=b'event: ping\ndata: {"type": "ping"}\n\n',
        cut_short=frozenset({"max_tokens", "model_context_window_exceeded"}),
        refusals=frozenset({"refusal"}),
    ),
    continuing=MessageContinuing(),
    pivoting=Pivoting(
        to_chat=to_chat,
        from_chat=_from_chat,
        stream_to_chat=ToChat,
        stream_from_chat=FromChat,
        habits_of=habits_of,
    ),
)
