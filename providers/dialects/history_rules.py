"""What a provider accepts in the history of a conversation, as data."""

import hashlib
import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from providers.dialects.wording import raw_json
from providers.refusals import UNREADABLE

PARTS_OF_THOUGHTS = "thinking"
_ALPHABETS = {"any": ".", "word": "[a-zA-Z0-9_-]", "alphanumeric": "[a-zA-Z0-9]"}
_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LONGEST_HASH = 40  # characters of 62: as many as a hash of 30 bytes has


class CallIds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The ids of tool calls that an API takes."""

    longest: int  # characters
    shortest: int = 1
    letters: Literal["any", "word", "alphanumeric"] = "any"  # word: letters, digits, _ and -

    def takes(self, call_id: str) -> bool:
        """Whether the id is sent unchanged."""
        pattern = f"{_ALPHABETS[self.letters]}{{{self.shortest},{self.longest}}}"
        return re.fullmatch(pattern, call_id, re.DOTALL) is not None


class FittedIds:
    """The ids of one conversation as an API takes them: each is always changed alike, and no two become equal."""

    def __init__(self, form: CallIds) -> None:
        self._form = form
        self._fitted: dict[str, str] = {}
        self._taken: set[str] = set()

    def of(self, call_id: str) -> str:
        """Return the id to send: unchanged if the API takes it, else a hash."""
        fitted = self._fitted.get(call_id)
        if fitted is None:
            fitted = call_id if self._form.takes(call_id) else self._hash(call_id)
            salt = 0
            while fitted in self._taken:
                salt += 1
                fitted = self._hash(f"{call_id}\0{salt}")
            self._fitted[call_id] = fitted
            self._taken.add(fitted)
        return fitted

    def raw(self, value: msgspec.Raw) -> msgspec.Raw:
        """Return a field that has an id with the id to send; unchanged if the field is no text."""
        try:
            given = msgspec.json.decode(value, type=str)
        except UNREADABLE:
            return value
        fitted = self.of(given)
        return value if fitted == given else raw_json(fitted)

    def _hash(self, call_id: str) -> str:
        number = int.from_bytes(hashlib.sha256(call_id.encode()).digest(), "big")
        letters = []
        for _ in range(max(self._form.shortest, min(self._form.longest, _LONGEST_HASH))):
            number, letter = divmod(number, len(_LETTERS))
            letters.append(_LETTERS[letter])
        return "".join(letters)


class HistoryRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a provider accepts in a history. The default accepts everything."""

    # By API. Mistral refuses others with "Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9."
    call_ids: Mapping[str, CallIds] = {}
    # Of chat: the accepted fields of assistant messages, and of tool calls in them. None: all
    assistant_fields: frozenset[str] | None = None
    call_fields: frozenset[str] | None = None
    # Of chat: fields of messages and of tool calls that other vendors' answers have, and that the provider refuses.
    # ``thinking``: parts of content that are thoughts, such as Mistral's
    # {"type": "thinking", "thinking": [{"type": "text", …}]}.
    refused_fields: frozenset[str] = frozenset()
    # Of chat: reasoning_content is required beside tool calls. This text is sent if a client has none. None: not
    # required. Moonshot refuses with "thinking is enabled but reasoning_content is missing in assistant tool call
    # message at index 2".
    missing_reasoning: str | None = None
    named_turns: bool = True  # of chat: a turn of the system or the user may have a name
    # Turns of the assistant, texts in these turns, and instructions may be blank. Mistral refuses such a turn with
    # "Assistant message must have either content or tool_calls, but not none."
    blank_turns: bool = True
    # Of chat; False: after a tool's result comes another result, or the assistant. Mistral refuses another order with
    # "Unexpected role 'user' after role 'tool'".
    user_after_tool: bool = True
    # Of chat, Messages, Responses: one system prompt, the first. Templates raise "System message must be at the
    # beginning."
    one_system: bool = False
    # Of chat: there may be a system prompt; else the user says the same. Templates raise "System role not supported".
    instructions: bool = True
    blank_arguments: bool = True  # of chat: a call without arguments may have a blank text as arguments
    system_turns: bool = True  # of Messages: instructions may stand among the messages
    # Of Messages: documents and found texts may be blocks; else such blocks of plain text are sent as texts.
    documents: bool = True
    user_first: bool = False  # of chat: the user speaks first, after the system prompt
    # Of chat: no two messages of the user, or of the assistant, in a row. Templates raise "Conversation roles
    # must alternate user/assistant/user/assistant/...".
    alternating: bool = False
    # Of chat: answers of the assistant may follow each other, as programs write one that broke off and went on. Google
    # refuses a call in the second: "function call turn comes immediately after a user turn".
    answers_in_a_row: bool = True
    plain_texts: bool = False  # of chat: contents are a text, not a list of texts
    plain_blocks: bool = False  # of Messages: the same, also in the system prompt and in results of tools
    null_contents: bool = True  # of chat: beside calls, a content may be null
    offers_called: bool = False  # of chat and Responses: beside any functions, the called ones must be offered

    @property
    def tells(self) -> bool:
        """Whether something may be lost, so that a request is checked before it is planned.

        Without ``refused_fields``: a request is checked for these only if one of them ``stands`` in it.
        """
        return (
            self.assistant_fields is not None
            or self.missing_reasoning is not None
            or self.moves_system
            or not self.documents
            or not self.blank_turns
            or not self.named_turns
        )

    @property
    def moves_system(self) -> bool:
        """Whether instructions among the messages (in Messages) are sent as the user's."""
        return self.one_system or not self.system_turns

    def with_ids(self, api: str, letters: str, longest: int) -> "HistoryRules":
        """Return these rules with other ids of calls. Mistral's, of letters and digits alone, have one length."""
        shortest = longest if letters == "alphanumeric" else 1
        form = msgspec.convert({"letters": letters, "shortest": shortest, "longest": longest}, CallIds)
        return msgspec.structs.replace(self, call_ids={**self.call_ids, api: form})

    def strictest(self) -> "HistoryRules":
        """Return the strictest form of these rules, for a server that refuses roles, or lists of texts."""
        strict = {"one_system": True, "user_first": True, "alternating": True, "plain_texts": True}
        refused = self.refused_fields | {PARTS_OF_THOUGHTS}
        return msgspec.structs.replace(
            self, refused_fields=refused, user_after_tool=False, null_contents=False, **strict
        )
