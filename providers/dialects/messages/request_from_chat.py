"""Translates a chat completion request into a Messages request."""

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from providers.dialects.chat.custom_tools import CUSTOM, as_function_call
from providers.dialects.chat.forced_call import loses_format
from providers.dialects.chat.searches import SEARCH_FIELD, search_in
from providers.dialects.messages.fields import (
    DEFAULTS,
    OF_DOCUMENT,
    KeptSchema,
    allowed_id,
    arguments_at,
    budget_of,
    chosen_tool,
    form_of,
    function_of,
    limit_of,
    lose_rest_of_answer,
    lose_stream_options,
    name_in_messages,
    request_of,
    signed_thoughts,
    stops_of,
    thinking_of_effort,
)
from providers.dialects.reading import Object, RawObject, object_at, objects_at, present, raw_text_at, said_of, text_at
from providers.dialects.wording import (
    CACHE_REASON,
    LEFT_OUT,
    OF_ANSWER,
    THOUGHTS,
    Losses,
    Malformed,
    UniqueIds,
    Wording,
    as_error,
    as_users,
    decoded,
    is_null,
    is_string,
    raw_json,
    results_first,
)
from providers.models import LeastThinking, Sampling

_IMAGE = re.compile(r"data:(image/(?:jpe?g|png|gif|webp));base64,(.*)", re.DOTALL)
_FILE = re.compile(r"data:(application/pdf|text/plain);base64,(.*)", re.DOTALL)
_PDF = re.compile(r"https?://[^?#]+\.pdf(?:[?#].*)?", re.IGNORECASE | re.DOTALL)
_LONGEST_BLANK_BYTES = 64  # longer texts are not decoded: one may be a whole book
_LONG_BLANK = re.compile(  # what ``str.strip`` takes away, in UTF-8 or escaped
    rb'"(?:\s++|\\[fnrt]|\\u(?:00(?:0[9a-d]|1[c-f]|20|85|a0)|1680|20(?:0[0-9a]|2[89f]|5f)|3000)'
    rb'|\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f|\xe3\x80\x80)*+"',
    re.IGNORECASE,
)


class Turns:
    """A chat conversation as turns of blocks, for APIs with a system prompt and blocks of their own.

    ``_losses`` get the parts that ``api`` cannot express. A subclass makes the blocks, and joins them to turns.
    """

    api = "Messages"
    system_comes_first = "this model takes system prompts only first"
    thoughts_are_signed = "Messages refuses thinking blocks that it did not sign"
    assistant_is_text = ""  # why anything but an assistant's text is a loss; "": nothing is a loss
    documents = "documents as PDF or plain text"  # documents that are taken

    def __init__(self, losses: Losses, allowed: Callable[[str], str] = allowed_id) -> None:
        """``allowed``: writes a call's id in the letters that the API allows."""
        self.system: list[Object] = []
        self.turns: list[Object] = []
        self.takes_signed = False  # whether thoughts that the model has signed are sent back
        self._ids = UniqueIds(allowed)
        self._losses = losses
        self._no_field = f"{self.api} has no such field"
        self._lost_calls: set[str] = set()  # ids of calls of tools that are no functions

    def read(self, messages: Sequence[RawObject]) -> None:
        """Translate all messages of a request.

        Raises:
            Malformed: a message is not valid in chat.

        """
        roles = [text_at(message, "role", f"messages[{i}]") for i, message in enumerate(messages)]
        for number, message in results_first(messages):
            path, role = f"messages[{number}]", roles[number]
            if role in {"system", "developer"}:
                self._add_system(message, path)
            elif role == "user":
                self._add_user(message, path)
            elif role == "assistant":
                self._add_assistant(message, path)
            elif role == "tool":
                self._add_result(message, path)
            else:
                self._losses.add(path, f"{self.api} has no role {role!r}")
        if self.turns and self.turns[0]["role"] == "assistant":
            self.turns.insert(0, {"role": "user", "content": [self._text_block(raw_json(LEFT_OUT), {})]})
        if roles[-1] == "assistant":
            last = f"messages[{len(messages) - 1}]"
            self._losses.add(last, f"{self.api} continues an assistant's last message, and does not answer it")
        elif self.turns and self.turns[-1]["role"] == "assistant":  # the last message is blank
            self._say("user", [self._text_block(raw_json(LEFT_OUT), {})])

    # The methods that a subclass has to make.

    def _say(self, role: str, blocks: list[Object], text: msgspec.Raw | None = None) -> None:
        """Add what the user or the assistant said. ``text``: the same, if that is a single text."""
        raise NotImplementedError

    def _tell(self, blocks: list[Object]) -> None:
        """Add instructions behind other turns, as the user's."""
        self._say("user", blocks)

    def _answer(self, call_id: str, message: RawObject, path: str) -> None:
        """Add the result of a tool's call."""
        raise NotImplementedError

    def _text_block(self, text: msgspec.Raw, part: RawObject) -> Object:
        raise NotImplementedError

    def _call_block(self, call_id: str, name: msgspec.Raw, arguments: msgspec.Raw) -> Object:
        raise NotImplementedError

    def _thought_block(self, thought: Object) -> Object:
        """Return the block of a signed or encrypted thought, from a block of Messages."""
        return thought

    def _image(self, url: str, part: RawObject, at: str) -> list[Object]:
        raise NotImplementedError

    def _file(self, data: str, file: RawObject, part: RawObject, at: str) -> list[Object] | None:
        """Return the block of a document; None if the API does not take the document's format."""
        raise NotImplementedError

    def _document_at(self, address: str, file: RawObject, part: RawObject, at: str) -> list[Object]:  # noqa: ARG002 - another's
        """Return the block of a document that is at an address."""
        self._losses.add(f"{at}.file.file_url", f"{self.api} takes no addresses of files")
        return []

    def _other(self, kind: str, part: RawObject, at: str, *, in_result: bool) -> list[Object]:  # noqa: ARG002 - another's
        """Return the blocks of a part that is no text, image or file."""
        self._losses.add(at, f"{self.api} has no {'audio input' if kind == 'input_audio' else 'such part'}")
        return []

    def _end_part(self, part: RawObject, blocks: list[Object]) -> None:
        """Handle the end of a part, whose block, if it has one, is the last."""

    # The methods that all subclasses share.

    def _add_system(self, message: RawObject, path: str) -> None:
        """Add a system message to the system prompt, or behind other turns to the user's turn."""
        self._losses.rest(message, ("role", "content"), path, self._no_field)
        only = f"a system prompt of {self.api} is text"
        blocks = self._blocks(message.get("content"), f"{path}.content", texts_only=only)
        if not self.turns:
            self.system += blocks
            return
        reason = f"{self.system_comes_first}: this one goes into the user's message, in <system> tags"
        self._losses.add(f"{path}.role", reason, hint=True)
        for block in blocks:
            if "text" in block:
                block["text"] = as_users(decoded(raw_json(block["text"]), str, path))
        self._tell(blocks)

    def _add_user(self, message: RawObject, path: str) -> None:
        self._losses.rest(message, ("role", "content"), path, self._no_field)
        content = message.get("content")
        if content is None or is_null(content):
            raise Malformed(f"'{path}.content' is required", f"{path}.content")
        self._say("user", self._blocks(content, f"{path}.content"), content if is_string(content) else None)

    def _add_result(self, message: RawObject, path: str) -> None:
        said = ("role", "content", "tool_call_id", "name", "cache_control", "is_error")  # the call has the name too
        self._losses.rest(message, said, path, self._no_field)
        call_id = text_at(message, "tool_call_id", path)
        if call_id in self._lost_calls:
            self._losses.add(path, f"{self.api} takes no result without its call")
        else:
            self._answer(call_id, message, path)

    def _add_assistant(self, message: RawObject, path: str) -> None:
        content = message.get("content")
        thoughts = [self._thought_block(each) for each in signed_thoughts(message)] if self.takes_signed else []
        lose_rest_of_answer(
            message,
            path,
            self._losses,
            said=("role", "content", "tool_calls", "refusal"),
            thoughts=THOUGHTS if thoughts else (),
            unsigned=self.thoughts_are_signed,
            api=self.api,
        )
        calls = objects_at(message.get("tool_calls"), f"{path}.tool_calls")
        only = self.assistant_is_text
        blocks = self._blocks(content, f"{path}.content", texts_only=only, empty_is_said=bool(calls))
        if is_string(message.get("refusal")):
            blocks += self._text({"text": message["refusal"]}, f"{path}.refusal", "text", empty_is_said=True)
        plain = is_string(content) and len(blocks) == 1 and not calls
        for number, call in enumerate(calls):
            blocks += self._call(call, f"{path}.tool_calls[{number}]")
        if thoughts and not blocks:  # thoughts alone are no turn
            self._losses.add(f"{path}.thinking_blocks", f"{self.api} takes no turn of thoughts alone", hint=True)
            thoughts = []
        self._say("assistant", thoughts + blocks, content if plain and not thoughts else None)

    def _call(self, call: RawObject, at: str) -> list[Object]:
        kind = decoded(call.get("type"), str, f"{at}.type") or "function"
        if kind == CUSTOM:  # a call of a tool that is not offered any more: offered tools became functions before
            object_at(call.get(CUSTOM), f"{at}.custom")
            call, kind = as_function_call(call), "function"
        if kind != "function":
            self._losses.add(at, f"{self.api} has functions only")
            self._lost_calls.add(text_at(call, "id", at))
            return []
        function = object_at(call.get("function"), f"{at}.function")
        arguments = arguments_at(function, f"{at}.function", self._losses, self.api)
        self._losses.rest(call, ("id", "type", "index", "function"), at, self._no_field)
        self._losses.rest(function, ("name", "arguments"), f"{at}.function", self._no_field)
        return [self._call_block(text_at(call, "id", at), raw_text_at(function, "name", f"{at}.function"), arguments)]

    def _blocks(
        self,
        content: msgspec.Raw | None,
        path: str,
        *,
        texts_only: str = "",
        empty_is_said: bool = False,
        in_result: bool = False,
    ) -> list[Object]:
        """Return a message's content as blocks. A blank text is left out: the API would refuse it.

        ``texts_only``: why anything but text is a loss; "": nothing is a loss.
        """
        if content is None or is_null(content):
            return []
        if is_string(content):
            return self._text({"text": content}, path, "text", empty_is_said=empty_is_said or in_result)
        blocks: list[Object] = []
        for number, part in enumerate(objects_at(content, path)):
            at = f"{path}[{number}]"
            kind = text_at(part, "type", at)
            if kind in {"text", "refusal"}:
                blocks += self._text(part, at, kind, empty_is_said=empty_is_said or in_result)
            elif texts_only:
                self._losses.add(at, texts_only)
            elif kind == "image_url":
                blocks += self._read_image(part, at)
            elif kind == "file":
                blocks += self._read_file(part, at)
            else:
                blocks += self._other(kind, part, at, in_result=in_result)
            self._end_part(part, blocks)
        return blocks

    def _text(self, part: RawObject, at: str, name: str, *, empty_is_said: bool) -> list[Object]:
        text = raw_text_at(part, name, at)
        self._losses.rest(part, ("type", name, "cache_control"), at, self._no_field, repeated=OF_ANSWER)
        if len(memoryview(text)) > _LONGEST_BLANK_BYTES:
            is_blank = _LONG_BLANK.fullmatch(text) is not None
        else:
            is_blank = not msgspec.json.decode(text, type=str).strip()
        if is_blank:
            if not empty_is_said:
                self._losses.add(at, f"{self.api} refuses empty text", hint=True)
            return []
        return [self._text_block(text, part)]

    def _read_image(self, part: RawObject, at: str) -> list[Object]:
        image = object_at(part.get("image_url"), f"{at}.image_url")
        url = text_at(image, "url", f"{at}.image_url")
        if bytes(image.get("detail", b"null")) not in {b"null", b'"auto"'}:
            self._losses.add(f"{at}.image_url.detail", f"{self.api} has no detail level for images", hint=True)
        self._losses.rest(part, ("type", "image_url", "cache_control"), at, self._no_field)
        self._losses.rest(image, ("url", "detail"), f"{at}.image_url", self._no_field)
        return self._image(url, part, at)

    def _read_file(self, part: RawObject, at: str) -> list[Object]:
        file = object_at(part.get("file"), f"{at}.file")
        self._losses.rest(part, ("type", "file", "cache_control", *OF_DOCUMENT), at, self._no_field)
        of_openai = f"{self.api} has no access to OpenAI's files"
        self._losses.rest(file, ("file_data", "filename", "file_url"), f"{at}.file", of_openai)
        if address := decoded(file.get("file_url"), str, f"{at}.file.file_url"):
            return self._document_at(address, file, part, at)
        blocks = self._file(decoded(file.get("file_data"), str, f"{at}.file.file_data") or "", file, part, at)
        if blocks is None and ("file_data" in file or not is_string(file.get("file_id"))):  # an id is noted above
            self._losses.add(f"{at}.file.file_data", f"{self.api} takes {self.documents}, in base64")
        return blocks or []


class MessagesTurns(Turns):
    """The turns so far, and the system prompt's blocks."""

    def __init__(self, losses: Losses) -> None:
        super().__init__(losses)
        self._answers_tools = False  # the last turn has tool results, and nothing else yet

    def _say(self, role: str, blocks: list[Object], text: msgspec.Raw | None = None) -> None:
        if not blocks:
            return
        if role == "user" and self._answers_tools:  # results, and the user's text beside them, are one turn
            self.turns[-1]["content"] += blocks
        else:
            self.turns.append({"role": role, "content": blocks if text is None else text})
        self._answers_tools = False

    def _tell(self, blocks: list[Object]) -> None:
        last = self.turns[-1]
        if blocks and last["role"] == "user":
            said = last["content"]
            last["content"] = [*(said if isinstance(said, list) else [{"type": "text", "text": said}]), *blocks]
        elif blocks:
            self.turns.append({"role": "user", "content": blocks})
        self._answers_tools = False

    def _answer(self, call_id: str, message: RawObject, path: str) -> None:
        block: Object = {"type": "tool_result", "tool_use_id": self._ids.of_result(call_id)}
        content = message.get("content")
        blocks = self._blocks(content, f"{path}.content", in_result=True)
        if content is not None and not is_null(content):
            block["content"] = content if is_string(content) else blocks
        if is_error(message, path):
            told = block.get("content")
            if isinstance(told, list) and any(each["type"] != "text" for each in told):
                told.insert(0, {"type": "text", "text": as_error("")})  # is_error beside a picture is refused
            else:
                block["is_error"] = True
                if not blocks:  # is_error without a word too: github.com/jlevy/markform/issues/153, read on 2026-11-29
                    block["content"] = as_error("")
        _marked(message, block)
        if self._answers_tools:
            self.turns[-1]["content"].append(block)
        else:
            self.turns.append({"role": "user", "content": [block]})
            self._answers_tools = True

    def _text_block(self, text: msgspec.Raw, part: RawObject) -> Object:
        return _marked(part, {"type": "text", "text": text})

    def _call_block(self, call_id: str, name: msgspec.Raw, arguments: msgspec.Raw) -> Object:
        return {"type": "tool_use", "id": self._ids.of_call(call_id), "name": name, "input": arguments}

    def _image(self, url: str, part: RawObject, at: str) -> list[Object]:
        if inline := _IMAGE.fullmatch(url):
            media_type = inline[1].replace("/jpg", "/jpeg")  # a common mistake, which chat accepts
            source = {"type": "base64", "media_type": media_type, "data": inline[2]}
        elif url.startswith(("https://", "http://")):
            source = {"type": "url", "url": url}
        else:
            self._losses.add(f"{at}.image_url.url", "Messages takes JPEG, PNG, GIF and WebP, by address or in base64")
            return []
        return [_marked(part, {"type": "image", "source": source})]

    def _file(self, data: str, file: RawObject, part: RawObject, at: str) -> list[Object] | None:
        inline = _FILE.fullmatch(data)
        if inline is None:
            return None
        source = {"type": "base64", "media_type": inline[1], "data": inline[2]}
        if inline[1] == "text/plain":
            try:
                text = base64.b64decode(inline[2], validate=True).decode()
            except (binascii.Error, UnicodeDecodeError):
                raise Malformed(f"'{at}.file.file_data' is not base64 text", f"{at}.file.file_data") from None
            source = {"type": "text", "media_type": inline[1], "data": text}
        return [self._document(source, file, part)]

    def _document_at(self, address: str, file: RawObject, part: RawObject, at: str) -> list[Object]:
        if _PDF.fullmatch(address) is None:
            self._losses.add(f"{at}.file.file_url", "Messages takes addresses of PDF files only")
            return []
        return [self._document({"type": "url", "url": address}, file, part)]

    def _document(self, source: Object, file: RawObject, part: RawObject) -> Object:
        block: Object = {"type": "document", "source": source}
        if "filename" in file and not is_null(file["filename"]):
            block["title"] = file["filename"]
        return _marked(part, block | said_of(present(part), *OF_DOCUMENT))


def is_error(message: RawObject, path: str) -> bool:
    """Whether a result says that the tool has failed, in the pivot's own field, not chat's.

    Raises:
        Malformed: the field is neither true nor false.

    """
    return decoded(message.get("is_error"), bool, f"{path}.is_error") is True


def _marked(source: Mapping[str, msgspec.Raw], block: Object) -> Object:
    """Copy a mark of what to cache: chat has none of its own, so a mark in chat means the same as in Messages."""
    if "cache_control" in source and not is_null(source["cache_control"]):
        block["cache_control"] = source["cache_control"]
    return block


DEFAULT_MAX_TOKENS = 4096  # Messages requires a limit, chat does not; every Claude model since 3 supports this one

_SAME = ("model", "stream")
_TRANSLATED = frozenset(
    {
        *_SAME,
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "parallel_tool_calls",
        "reasoning_effort",
        "response_format",
        "safety_identifier",
        "service_tier",
        "shows_thoughts",  # Messages shows thoughts
        "stop",
        "stream_options",  # Messages always sends usage
        "temperature",
        "tool_choice",
        "tools",
        "top_k",  # servers of open models have this field in chat
        "top_p",
        "user",
    }
)
_HINTS: Mapping[str, str] = {
    "metadata": "Messages has no metadata except the user's id",
    "prediction": "Messages takes no prediction",
    "prompt_cache_key": CACHE_REASON,
    "prompt_cache_options": CACHE_REASON,
    "prompt_cache_retention": CACHE_REASON,
}
_REASONS: Mapping[str, str] = {
    "audio": "Messages has no audio output",
    "frequency_penalty": "Messages has no penalties",
    "function_call": "Messages has tools in place of functions",
    "functions": "Messages has tools in place of functions",
    "logit_bias": "Messages has no logit bias",
    "logprobs": "Messages has no log probabilities",
    "modalities": "Messages answers in text",
    "moderation": "Messages does not moderate",
    "n": "Messages gives one answer",
    "presence_penalty": "Messages has no penalties",
    "seed": "Messages has no seed",
    "store": "Messages stores nothing",
    "top_logprobs": "Messages has no log probabilities",
    "verbosity": "Messages has no verbosity",
    "web_search_options": "Messages has its own web search tool",
}
# Whether a model takes both temperature and top_p, one of them, or neither (nor top_k).

_NO_FIELD = "Messages has no such field"
_NOT_AT_THE_TOP = frozenset({"allOf", "anyOf", "oneOf"})
_LEAST_TOP_P_THINKING = 0.95
_THINKING_REASONS: Mapping[str, str] = {
    "temperature": "Messages needs temperature 1 for thinking",
    "top_p": f"Messages thinks with a top_p of at least {_LEAST_TOP_P_THINKING}",
    "top_k": "Messages has no top_k with thinking",
}


def from_chat(
    fields: Mapping[str, msgspec.Raw],
    *,
    default_max_tokens: int = DEFAULT_MAX_TOKENS,
    is_longest: bool = False,
    adaptive_thinking: bool = True,
    least_thinking: LeastThinking = "off",
    sampling: Sampling = "free",
    signs: bool = False,
    searches: bool = False,
) -> Wording:
    """Translate a chat completion request into a Messages request.

    ``default_max_tokens``: the limit of an answer for clients that set none. ``is_longest``: no answer may be longer,
    thoughts included. ``adaptive_thinking``, as of Claude since 4.6: an effort stays an effort; otherwise it becomes a
    budget of tokens. ``least_thinking``: what becomes of a request that forbids thinking, as some models cannot stop.
    ``sampling``: which of temperature, top_p and top_k the model takes. A temperature or top_p of 1, the default in
    both APIs, is not sent: newer models refuse any value. ``signs``: the model reads thoughts that it has signed.
    ``searches``: the vendor searches the web.

    Raises:
        Malformed: the request is not valid in chat.

    """
    losses = Losses()
    asked, given = request_of(fields)
    conversation = MessagesTurns(losses)
    conversation.takes_signed = signs
    conversation.read(given)
    if not conversation.turns:
        losses.add("messages", "Messages needs more than a system prompt")

    said: Object = {name: asked[name] for name in _SAME if name in asked}
    limit = limit_of(asked, losses, "Messages")
    said["max_tokens"] = default_max_tokens if limit is None else limit
    if system := conversation.system:
        said["system"] = system[0]["text"] if len(system) == 1 and len(system[0]) == len(("type", "text")) else system
    said["messages"] = conversation.turns
    said.update(_stops(asked, losses))
    said.update(_tools(asked, losses))
    if searches and (found := search_in(asked, losses, _SEARCH)):
        said["tools"] = [*said.get("tools", ()), *found]
        del asked[SEARCH_FIELD]
    said.update(_form(asked, losses))
    effort = decoded(asked.get("reasoning_effort"), str, "reasoning_effort")
    limited = limit is not None or is_longest
    thinking = thinking_of_effort(
        effort, said, losses, adaptive=adaptive_thinking, limited=limited, least=least_thinking, budget=budget_of(asked)
    )
    if "output_config" in thinking and "output_config" in said:
        thinking["output_config"] = {**said["output_config"], **thinking["output_config"]}
    said.update(thinking)
    thinks = thinking.get("thinking", {}).get("type") in {"enabled", "adaptive"}
    said.update(_sampling(asked, losses, sampling, thinks=thinks))
    said.update(_user(asked, losses))
    lose_stream_options(asked, losses, _NO_FIELD)
    for name, value in asked.items():
        if name not in _TRANSLATED and bytes(value) not in DEFAULTS.get(name, ()):
            losses.add(name, _HINTS.get(name) or _REASONS.get(name, _NO_FIELD), hint=name in _HINTS)
    return Wording({name: raw_json(value) for name, value in said.items()}, losses.met())


_SEARCH: Object = {"type": "web_search_20250305", "name": "web_search"}


def _stops(asked: RawObject, losses: Losses) -> Object:
    stops = stops_of(asked)
    if any(not stop.strip() for stop in stops):
        losses.add("stop", "Messages has no blank stop sequences")
    said = [stop for stop in stops if stop.strip()]
    return {"stop_sequences": said} if said else {}


def _tools(asked: RawObject, losses: Losses) -> Object:
    said: list[Object] = []
    for number, tool in enumerate(objects_at(asked.get("tools"), "tools")):
        found = function_of(tool, f"tools[{number}]", losses, "Messages")
        if found is None:
            continue
        at, function, schema = found
        one: Object = {"name": raw_text_at(function, "name", at)}
        if "description" in function and not is_null(function["description"]):
            one["description"] = function["description"]
        one["input_schema"] = schema
        for keyword in _NOT_AT_THE_TOP & schema.keys():
            losses.add(f"{at}.parameters.{keyword}", f"Messages takes no {keyword} at the top of a tool's schema")
            del schema[keyword]
        if bytes(function.get("strict", b"null")) == b"true":
            one |= _strict(schema, at, losses)
        if "cache_control" in tool:
            one["cache_control"] = tool["cache_control"]
        said.append(one)
    if not said:
        if "tool_choice" in asked and bytes(asked["tool_choice"]) not in {b'"none"', b'"auto"'}:
            losses.add("tool_choice", "Messages chooses among tools only")
        return {}
    choice = _tool_choice(asked, losses)
    return {"tools": said, "tool_choice": choice} if choice else {"tools": said}


def _strict(schema: Object, at: str, losses: Losses) -> Object:
    kept = KeptSchema(raw_json(schema), f"{at}.parameters")
    if kept.lost:
        losses.add(f"{at}.strict", f"Messages cannot keep a call to {kept.lost[0]}: best effort instead", hint=True)
        return {}
    return {"input_schema": kept.kept, "strict": True}


def _tool_choice(asked: RawObject, losses: Losses) -> Object | None:
    said: Object | None = None
    chosen = chosen_tool(asked)
    if isinstance(chosen, str):
        said = {"type": "any" if chosen == "required" else chosen}
    elif chosen is not None:
        said = {"type": "tool", "name": chosen}
    elif "tool_choice" in asked:
        losses.add("tool_choice", "Messages can choose one tool, any, all or none")
    if decoded(asked.get("parallel_tool_calls"), bool, "parallel_tool_calls") is False and (
        said is None or said["type"] != "none"
    ):
        said = {**(said or {"type": "auto"}), "disable_parallel_tool_use": True}
    return said


def _form(asked: RawObject, losses: Losses) -> Object:
    if loses_format(asked, losses):
        return {}
    given, path = form_of(asked, losses, "Messages"), "response_format.json_schema"
    if given is None:
        return {}
    if "description" in given and not is_null(given["description"]):
        losses.add(f"{path}.description", "Messages has a description in the schema only", hint=True)
    schema = KeptSchema(given["schema"], f"{path}.schema")
    for keyword in schema.lost:
        losses.add(keyword, "Messages does not support this keyword of a schema")
    return {"output_config": {"format": {"type": "json_schema", "schema": schema.kept}}}


def _sampling(asked: RawObject, losses: Losses, sampling: Sampling, *, thinks: bool) -> Object:
    temperature = decoded(asked.get("temperature"), float, "temperature")
    top_p = decoded(asked.get("top_p"), float, "top_p")
    plain = {name for name, value in (("temperature", temperature), ("top_p", top_p)) if value == 1}
    said: Object = {}
    for name in ("temperature", "top_p", "top_k"):
        if name not in asked or name in plain:
            continue
        if sampling == "none":
            losses.add(name, f"this model takes no {name}")
        elif sampling == "one" and name == "top_p" and "temperature" in said:
            losses.add(name, "this model takes a temperature or a top_p, not both")
        elif name == "temperature" and temperature > 1:
            losses.add(name, "Messages has no temperature over 1")
        elif thinks and (name != "top_p" or top_p < _LEAST_TOP_P_THINKING):
            losses.add(name, _THINKING_REASONS[name])
        else:
            said[name] = asked[name]
    return said


def _user(asked: RawObject, losses: Losses) -> Object:
    """Return the fields for the user's name and the service tier."""
    said: Object = {}
    for name in ("safety_identifier", "user"):
        if name in asked and not said:
            user: str = decoded(asked[name], str, name)
            said["metadata"] = {"user_id": name_in_messages(user, name, losses)}
    if "user" in asked and "safety_identifier" in asked:
        losses.add("user", "Messages has only one field for the user's name", hint=True)
    tier = decoded(asked.get("service_tier"), str, "service_tier")
    if tier == "default":
        said["service_tier"] = "standard_only"
    elif tier not in {None, "auto"}:
        losses.add("service_tier", f"Messages has no service tier {tier!r}")
    return said
