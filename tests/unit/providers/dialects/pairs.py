"""What two APIs can both say of a request: a row for each thing, with how each API says it.

A row names only APIs that have a place for it, by their documents (developers.openai.com/api/reference,
platform.claude.com/docs/en/api/messages, ai.google.dev/api/generate-content,
docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html, read on 2026-11-28).
"""

from base64 import b64encode
from collections.abc import Mapping
from typing import Any, NamedTuple

Json = dict[str, Any]

CONFIG = "generationConfig."
PNG = "iVBORw0KGgo="
PDF = "JVBERi0xLjQ="
WAV = "UklGRg=="
ADDRESS = "https://example.com/a.png"
PAPER = "https://example.com/a.pdf"
MARK: Json = {"cache_control": {"type": "ephemeral"}}
SCHEMA: Json = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


class Thing(NamedTuple):
    """One thing: how each API asks for it, and how each is asked for it where that differs.

    ``models``: those that take it, where others of the API do not.
    """

    asked: Mapping[str, Json]
    sent: Mapping[str, Json] = {}
    models: Mapping[str, str] = {}
    hints: frozenset[str] = frozenset()  # by the API that is asked: it is told so


def user(**parts: Any) -> Mapping[str, Json]:
    """Return a user's turn of one part in each API."""
    made: dict[str, Json] = {}
    for api, part in parts.items():
        match api:
            case "chat" | "messages":
                made[api] = {"messages": [{"role": "user", "content": [part]}]}
            case "responses":
                made[api] = {"input": [{"role": "user", "content": [part]}]}
            case "gemini":
                made[api] = {"contents": [{"role": "user", "parts": [part]}]}
            case _:
                made[api] = {"messages": [{"role": "user", "content": [part]}]}
    return made


def result(**given: Json) -> Mapping[str, Json]:
    """Return a call and its result in each API."""
    made: dict[str, Json] = {}
    for api, fields in given.items():
        match api:
            case "messages":
                call: Json = {"type": "tool_use", "id": "a1", "name": "look", "input": {}}
                block = {"type": "tool_result", "tool_use_id": "a1", **fields}
                turns = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [block]}]
                made[api] = {"messages": [{"role": "user", "content": "Hi"}, *turns]}
            case "responses":
                item = {"type": "function_call", "call_id": "a1", "name": "look", "arguments": "{}"}
                output = {"type": "function_call_output", "call_id": "a1", **fields}
                made[api] = {"input": [{"role": "user", "content": "Hi"}, item, output]}
            case "gemini":
                part = {"functionCall": {"id": "a1", "name": "look", "args": {}}}
                response = {"functionResponse": {"id": "a1", "name": "look", **fields}}
                turns = [{"role": "model", "parts": [part]}, {"role": "user", "parts": [response]}]
                made[api] = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}, *turns]}
            case _:
                use = {"toolUse": {"toolUseId": "a1", "name": "look", "input": {}}}
                told = {"toolResult": {"toolUseId": "a1", **fields}}
                turns = [{"role": "assistant", "content": [use]}, {"role": "user", "content": [told]}]
                made[api] = {"messages": [{"role": "user", "content": [{"text": "Hi"}]}, *turns]}
    return made


def tool(**more: Json) -> Mapping[str, Json]:
    """Return a tool in each API, with more fields of the request."""
    chat: Json = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": SCHEMA}}
    own: Json = {"name": "look", "description": "Looks.", "input_schema": SCHEMA}
    flat: Json = {"type": "function", "name": "look", "description": "Looks.", "parameters": SCHEMA}
    declared: Json = {"name": "look", "description": "Looks.", "parametersJsonSchema": SCHEMA}
    spec: Json = {"name": "look", "description": "Looks.", "inputSchema": {"json": SCHEMA}}
    tools: dict[str, Json] = {
        "chat": {"tools": [chat]},
        "messages": {"tools": [own]},
        "responses": {"tools": [flat]},
        "gemini": {"tools": [{"functionDeclarations": [declared]}]},
        "converse": {"toolConfig": {"tools": [{"toolSpec": spec}]}},
    }
    for api, fields in more.items():
        if api == "converse":
            tools[api]["toolConfig"] |= fields
        else:
            tools[api] |= fields
    return {api: fields for api, fields in tools.items() if api in more or not more}


def named(*names: str) -> Mapping[str, Json]:
    """Return tools of these names in each API that has a choice among several."""
    given: Json = {"description": "Looks.", "parameters": SCHEMA}
    declared: Json = {"description": "Looks.", "parametersJsonSchema": SCHEMA}
    return {
        "chat": {"tools": [{"type": "function", "function": {"name": name, **given}} for name in names]},
        "responses": {"tools": [{"type": "function", "name": name, **given} for name in names]},
        "gemini": {"tools": [{"functionDeclarations": [{"name": name, **declared} for name in names]}]},
    }


def among(mode: str, *names: str) -> Mapping[str, Json]:
    """Return the choice among tools of these names in each API: ``auto`` or ``required``."""
    functions: list[Json] = [{"type": "function", "function": {"name": name}} for name in names]
    calling = {"mode": "VALIDATED" if mode == "auto" else "ANY", "allowedFunctionNames": [*names]}
    flat = [{"type": "function", "name": name} for name in names]
    asked: Mapping[str, Json] = {
        "chat": {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": functions}}},
        "responses": {"tool_choice": {"type": "allowed_tools", "mode": mode, "tools": flat}},
        "gemini": {"toolConfig": {"functionCallingConfig": calling}},
    }
    return {api: {**named("look", "find", "drop")[api], **fields} for api, fields in asked.items()}


FORM: Json = {"name": "answer", "schema": SCHEMA}
FLASH, SONNET = "gemini-2.5-flash", "claude-sonnet-4-5"
OLD = {"gemini": FLASH, "messages": SONNET, "converse": f"anthropic.{SONNET}"}

THINGS: Mapping[str, Thing] = {
    "the system prompt": Thing({
        "chat": {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]},
        "messages": {"system": "Be brief."},
        "responses": {"instructions": "Be brief."},
        "gemini": {"systemInstruction": {"parts": [{"text": "Be brief."}]}},
        "converse": {"system": [{"text": "Be brief."}]},
    }),
    "the longest answer": Thing({
        "chat": {"max_completion_tokens": 77},
        "messages": {"max_tokens": 77},
        "responses": {"max_output_tokens": 77},
        "gemini": {CONFIG + "maxOutputTokens": 77},
        "converse": {"inferenceConfig": {"maxTokens": 77}},
    }),
    "temperature": Thing(
        {
            "chat": {"temperature": 0.5},
            "messages": {"temperature": 0.5},
            "responses": {"temperature": 0.5},
            "gemini": {CONFIG + "temperature": 0.5},
            "converse": {"inferenceConfig": {"temperature": 0.5}},
        },
        models=OLD,
    ),
    "top_p": Thing(
        {
            "chat": {"top_p": 0.5},
            "messages": {"top_p": 0.5},
            "responses": {"top_p": 0.5},
            "gemini": {CONFIG + "topP": 0.5},
            "converse": {"inferenceConfig": {"topP": 0.5}},
        },
        models=OLD,
    ),
    "top_k": Thing(
        {
            "messages": {"top_k": 40},
            "gemini": {CONFIG + "topK": 40},
            "converse": {"additionalModelRequestFields": {"top_k": 40}},
        },
        models=OLD,
    ),
    "a seed": Thing({"chat": {"seed": 7}, "gemini": {CONFIG + "seed": 7}}),
    "several answers": Thing({"chat": {"n": 2}, "gemini": {CONFIG + "candidateCount": 2}}, models=OLD),
    "penalties": Thing(
        {
            "chat": {"presence_penalty": 0.5, "frequency_penalty": 0.25},
            "gemini": {CONFIG + "presencePenalty": 0.5, CONFIG + "frequencyPenalty": 0.25},
        },
        models={"gemini": "gemini-2.0-flash"},
    ),
    "log probabilities": Thing(
        {
            "chat": {"logprobs": True, "top_logprobs": 3},
            "responses": {"include": ["message.output_text.logprobs"], "top_logprobs": 3},
            "gemini": {CONFIG + "responseLogprobs": True, CONFIG + "logprobs": 3},
        },
        models={"gemini": "gemini-2.0-flash"},
    ),
    "log probabilities of what is said alone": Thing(
        {
            "chat": {"logprobs": True},
            "responses": {"include": ["message.output_text.logprobs"]},
            "gemini": {CONFIG + "responseLogprobs": True},
        },
        models={"gemini": "gemini-2.0-flash"},
    ),
    "stop sequences": Thing(
        {
            "chat": {"stop": ["END", "STOP"]},
            "messages": {"stop_sequences": ["END", "STOP"]},
            "gemini": {CONFIG + "stopSequences": ["END", "STOP"]},
            "converse": {"inferenceConfig": {"stopSequences": ["END", "STOP"]}},
        },
        hints=frozenset({"chat", "gemini", "converse"}),  # which one it was
    ),
    "an effort": Thing(
        {
            "chat": {"reasoning_effort": "low"},
            "messages": {"output_config": {"effort": "low"}},
            "responses": {"reasoning": {"effort": "low"}},
            "gemini": {CONFIG + "thinkingConfig": {"thinkingLevel": "low"}},
            "converse": {"additionalModelRequestFields": {"output_config": {"effort": "low"}}},
        },
    ),
    "thoughts that are shown": Thing(
        {
            "messages": {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
            "responses": {"reasoning": {"effort": "low", "summary": "auto"}},
            "gemini": {CONFIG + "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "low"}},
            "converse": {
                "additionalModelRequestFields": {
                    "thinking": {"type": "adaptive", "display": "summarized"},
                    "output_config": {"effort": "low"},
                }
            },
        },
    ),
    "a budget of thinking": Thing(
        {
            "messages": {"thinking": {"type": "enabled", "budget_tokens": 12_000}, "max_tokens": 20_000},
            "gemini": {CONFIG + "thinkingConfig": {"thinkingBudget": 12_000}, CONFIG + "maxOutputTokens": 20_000},
            "converse": {
                "additionalModelRequestFields": {"thinking": {"type": "enabled", "budget_tokens": 12_000}},
                "inferenceConfig": {"maxTokens": 20_000},
            },
        },
        models=OLD,
    ),
    "a tool": Thing(tool()),
    "a tool whose schema a call must fit": Thing({
        "chat": {"tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": True}}]},
        "messages": {"tools": [{"name": "f", "input_schema": SCHEMA, "strict": True}]},
        "responses": {"tools": [{"type": "function", "name": "f", "parameters": SCHEMA, "strict": True}]},
        "gemini": {
            "tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": SCHEMA}]}],
            "toolConfig": {"functionCallingConfig": {"mode": "VALIDATED"}},
        },
        "converse": {
            "toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": SCHEMA}, "strict": True}}]}
        },
    }),
    "a tool that must be called": Thing(
        tool(
            chat={"tool_choice": "required"},
            messages={"tool_choice": {"type": "any"}},
            responses={"tool_choice": "required"},
            gemini={"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}},
            converse={"toolChoice": {"any": {}}},
        )
    ),
    "one tool that must be called": Thing(
        tool(
            chat={"tool_choice": {"type": "function", "function": {"name": "look"}}},
            messages={"tool_choice": {"type": "tool", "name": "look"}},
            responses={"tool_choice": {"type": "function", "name": "look"}},
            gemini={"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["look"]}}},
            converse={"toolChoice": {"tool": {"name": "look"}}},
        )
    ),
    "a choice among several tools": Thing(among("auto", "look", "find")),
    "a choice among several tools, one of which must be called": Thing(among("required", "look", "find")),
    "no tool": Thing(
        tool(
            chat={"tool_choice": "none"},
            messages={"tool_choice": {"type": "none"}},
            responses={"tool_choice": "none"},
            gemini={"toolConfig": {"functionCallingConfig": {"mode": "NONE"}}},
        )
    ),
    "one call at a time": Thing(
        tool(
            chat={"parallel_tool_calls": False},
            messages={"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
            responses={"parallel_tool_calls": False},
        )
    ),
    "a schema of the answer": Thing(
        {
            "chat": {"response_format": {"type": "json_schema", "json_schema": {**FORM, "strict": True}}},
            "messages": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
            "responses": {"text": {"format": {"type": "json_schema", **FORM, "strict": True}}},
            "gemini": {CONFIG + "responseMimeType": "application/json", CONFIG + "responseJsonSchema": SCHEMA},
            "converse": {"outputConfig": {"textFormat": {"type": "json_schema"}}},  # with the schema as text
        },
        sent={
            "chat": {"response_format": {"type": "json_schema", "json_schema": FORM}},
            "responses": {"text": {"format": {"type": "json_schema", **FORM}}},
        },
    ),
    "any JSON": Thing(
        {
            "chat": {"response_format": {"type": "json_object"}},
            "responses": {"text": {"format": {"type": "json_object"}}},
            "gemini": {CONFIG + "responseMimeType": "application/json"},
        },
        hints=frozenset({"chat", "responses"}),  # of the word that they want to hear
    ),
    "a picture": Thing(
        user(
            chat={"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
            messages={"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
            responses={"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"},
            gemini={"inlineData": {"mimeType": "image/png", "data": PNG}},
            converse={"image": {"format": "png", "source": {"bytes": PNG}}},
        )
    ),
    "the detail of a picture": Thing(
        user(
            chat={"type": "image_url", "image_url": {"url": ADDRESS, "detail": "low"}},
            responses={"type": "input_image", "image_url": ADDRESS, "detail": "low"},
        )
    ),
    "a file by its id": Thing(
        user(
            chat={"type": "file", "file": {"file_id": "file-1"}}, responses={"type": "input_file", "file_id": "file-1"}
        )
    ),
    "the address of a picture": Thing(
        user(
            chat={"type": "image_url", "image_url": {"url": ADDRESS}},
            messages={"type": "image", "source": {"type": "url", "url": ADDRESS}},
            responses={"type": "input_image", "image_url": ADDRESS, "detail": "auto"},
            gemini={"fileData": {"mimeType": "image/png", "fileUri": ADDRESS}},
        )
    ),
    "a document": Thing(
        user(
            chat={"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}},
            messages={
                "type": "document",
                "title": "a.pdf",
                "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
            },
            responses={"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"},
            converse={"document": {"format": "pdf", "name": "a", "source": {"bytes": PDF}}},
        )
    ),
    "a document without a name": Thing(
        user(
            messages={"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}},
            gemini={"inlineData": {"mimeType": "application/pdf", "data": PDF}},
        ),
        hints=frozenset({"gemini"}),  # of the name that chat needs
    ),
    "citations of a document": Thing(
        user(
            messages={
                "type": "document",
                "title": "a.pdf",
                "context": "A paper.",
                "citations": {"enabled": True},
                "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
            },
            converse={
                "document": {
                    "format": "pdf",
                    "name": "a",
                    "context": "A paper.",
                    "citations": {"enabled": True},
                    "source": {"bytes": PDF},
                }
            },
        )
    ),
    "citations of a text": Thing(
        user(
            messages={
                "type": "document",
                "citations": {"enabled": True},
                "source": {"type": "text", "media_type": "text/plain", "data": "A text."},
            },
            converse={
                "document": {
                    "format": "txt",
                    "citations": {"enabled": True},
                    "source": {"bytes": b64encode(b"A text.").decode()},
                }
            },
        )
    ),
    "the address of a document": Thing(
        user(
            messages={"type": "document", "title": "a.pdf", "source": {"type": "url", "url": PAPER}},
            responses={"type": "input_file", "filename": "a.pdf", "file_url": PAPER},
        )
    ),
    "the address of a document without a name": Thing(
        user(
            messages={"type": "document", "source": {"type": "url", "url": PAPER}},
            responses={"type": "input_file", "file_url": PAPER},
            gemini={"fileData": {"mimeType": "application/pdf", "fileUri": PAPER}},
        )
    ),
    "sound": Thing(
        user(
            chat={"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}},
            gemini={"inlineData": {"mimeType": "audio/wav", "data": WAV}},
            converse={"audio": {"format": "wav", "source": {"bytes": WAV}}},
        )
    ),
    "a picture in a tool's result": Thing(
        result(
            messages={
                "content": [
                    {"type": "text", "text": "Here:"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                ]
            },
            responses={
                "output": [
                    {"type": "input_text", "text": "Here:"},
                    {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
                ]
            },
            gemini={
                "response": {"output": "Here:"},
                "parts": [{"inlineData": {"mimeType": "image/png", "data": PNG}}],
            },
            converse={"content": [{"text": "Here:"}, {"image": {"format": "png", "source": {"bytes": PNG}}}]},
        ),
        hints=frozenset({"converse"}),  # of the tool, which it has to be told again
    ),
    "a document in a tool's result": Thing(
        result(
            messages={
                "content": [
                    {"type": "text", "text": "Here:"},
                    {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}},
                ]
            },
            responses={
                "output": [
                    {"type": "input_text", "text": "Here:"},
                    {"type": "input_file", "file_data": f"data:application/pdf;base64,{PDF}"},
                ]
            },
            gemini={
                "response": {"output": "Here:"},
                "parts": [{"inlineData": {"mimeType": "application/pdf", "data": PDF}}],
            },
            converse={"content": [{"text": "Here:"}, {"document": {"format": "pdf", "source": {"bytes": PDF}}}]},
        ),
        hints=frozenset({"converse", "gemini"}),  # of the tool, and of the name that chat needs
    ),
    "a tool that has failed": Thing(
        result(
            messages={"content": "no such city", "is_error": True},
            gemini={"response": {"error": "no such city"}},
            converse={"content": [{"text": "no such city"}], "status": "error"},
        ),
        hints=frozenset({"converse"}),
    ),
    "a user's name": Thing({
        "chat": {"user": "u1"},
        "messages": {"metadata": {"user_id": "u1"}},
        "responses": {"user": "u1"},
    }),
    "a hash of a user's name": Thing(
        {
            "chat": {"safety_identifier": "s1"},
            "messages": {"metadata": {"user_id": "s1"}},
            "responses": {"safety_identifier": "s1"},
        },
        sent={"chat": {}, "responses": {}},  # a client of Messages tells a name, which is the other field there
    ),
    "metadata": Thing({
        "chat": {"metadata": {"a": "b"}},
        "responses": {"metadata": {"a": "b"}},
        "converse": {"requestMetadata": {"a": "b"}},
    }),
    "the usual service tier": Thing({
        "chat": {"service_tier": "default"},
        "messages": {"service_tier": "standard_only"},
        "responses": {"service_tier": "default"},
        "converse": {"serviceTier": {"type": "default"}},
    }),
    "a cheaper service tier": Thing({
        "chat": {"service_tier": "flex"},
        "responses": {"service_tier": "flex"},
        "gemini": {"serviceTier": "flex"},
        "converse": {"serviceTier": {"type": "flex"}},
    }),
    "a faster service tier": Thing({
        "chat": {"service_tier": "priority"},
        "responses": {"service_tier": "priority"},
        "gemini": {"serviceTier": "priority"},
        "converse": {"serviceTier": {"type": "priority"}},
    }),
    "verbosity": Thing({"chat": {"verbosity": "low"}, "responses": {"text": {"verbosity": "low"}}}),
    "a key of the prompt's cache": Thing({
        "chat": {"prompt_cache_key": "k", "prompt_cache_retention": "24h"},
        "responses": {"prompt_cache_key": "k", "prompt_cache_retention": "24h"},
    }),
    "nothing is stored": Thing({"chat": {"store": False}, "responses": {"store": False}}, {"chat": {}}),
    "what the prompt is cached up to": Thing(
        {
            "chat": {
                "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi", **MARK}]}]
            },
            "messages": {
                "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi", **MARK}]}]
            },
            "converse": {
                "messages": [{"role": "user", "content": [{"text": "Hi"}, {"cachePoint": {"type": "default"}}]}]
            },
        }
    ),
}  # fmt: skip
