"""The session of an agent, read from a request as coding agents and the gateways before them name sessions.

A session keeps a conversation at its deployment and key (``gateway/steering/affinity.py``), becomes the
``prompt_cache_key`` of vendors with such a field, and is the call's tag ``session``. Clients may write any text there:
only a short and plain name counts, and one client's sessions are never another's.
"""

import re
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import blake2b

import msgspec
from multidict import istr

from gateway.api.payers import claude_code_in, user_id_of
from providers import UNREADABLE

SESSION = "session"  # the tag
# The headers that name a session, and their senders; the first in a request counts. All read on 2026-11-28. Agents send
# some others only to their makers' own gateways (``x-task-id`` of Cline, ``x-roo-task-id``, ``x-kilo-session``).
HEADERS: tuple[istr, ...] = tuple(
    map(
        istr,
        (
            "x-claude-code-session-id",  # Claude Code since 2.1.86: code.claude.com/docs/en/llm-gateway-protocol
            "x-session-affinity",  # opencode, Kilo: anomalyco/opencode, packages/opencode/src/session/llm/request.ts
            "session-id",  # Codex since 0.131: openai/codex, codex-rs/codex-api/src/requests/headers.rs, pull 22193
            "session_id",  # Codex until then; Roo Code: RooCodeInc/Roo-Code, src/api/providers/openai-native.ts
            "agent-session-id",  # goose: aaif-goose/goose, pulls 6626 and 6657; Agent Router reads it too
            "x-litellm-session-id",  # LiteLLM: docs.litellm.ai/docs/proxy/request_headers; OpenHands sends it
            "x-litellm-trace-id",  # Cline: cline/cline, sdk/packages/llms/src/providers/request-headers.ts
            "x-session-id",  # opencode beside its other one; Agent SDKs with a gateway in mind
            "x-amp-thread-id",  # Amp: router-for-me/CLIProxyAPI, sdk/cliproxy/auth/selector.go
            "helicone-session-id",  # Helicone: docs.helicone.ai/features/sessions; opencode's plugin for it
            "conversation_id",  # Codex of 2025: openai/codex, codex-rs/core/src/client.rs
        ),
    )
)
_NAME = re.compile(r"[\w.:/@+=~-]{1,128}", re.ASCII)
# Codex' ``prompt_cache_key`` is its thread's id. Other programs may write the same value for all of their calls.
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class _Cursor(msgspec.Struct):
    """The metadata of Cursor, whose ``user`` is a hash of its account (router-for-me/CLIProxyAPI: 2026-11-28)."""

    conversation: str | None = msgspec.field(name="cursorConversationId", default=None)


_cursor = msgspec.json.Decoder(_Cursor)
_KEY_BYTES = 24  # 32 characters: OpenAI takes 64


def session_in(headers: Mapping[str, str]) -> str | None:
    """Return the session named in the headers of a request; None without a session in a usual form."""
    for name in HEADERS:
        if (name_sent := headers.get(name)) is not None and _NAME.fullmatch(name_sent) is not None:
            return name_sent
    return None


def session_of(fields: Mapping[str, msgspec.Raw], cache_key: str | None) -> str | None:
    """Return the session named in a request's body: Claude Code's in its user, Cursor's, or Codex' ``cache_key``."""
    claude_code = None if (user_id := user_id_of(fields)) is None else claude_code_in(user_id)
    session_id = _conversation_in(fields) if claude_code is None else claude_code.session_id
    if session_id is not None:
        return session_id if _NAME.fullmatch(session_id) is not None else None
    return cache_key if cache_key is not None and _UUID.fullmatch(cache_key) is not None else None


def _conversation_in(fields: Mapping[str, msgspec.Raw]) -> str | None:
    try:
        return _cursor.decode(fields["metadata"]).conversation if "metadata" in fields else None
    except UNREADABLE:
        return None  # the provider reports the error


def cache_key_of(session: str, tenant: str | None, secret: bytes) -> msgspec.Raw:
    """Return the ``prompt_cache_key`` of a session, as JSON: a digest, which hides the client's name of the session."""
    scoped = f"{tenant or ''}\0{session}".encode()
    digest = blake2b(scoped, digest_size=_KEY_BYTES, key=secret[:64], person=b"holeshot cache").digest()
    return msgspec.Raw(b'"%b"' % urlsafe_b64encode(digest))
