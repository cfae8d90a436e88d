"""The accounts whose limits count a call besides its key's: the key's team, and the end user named in the request.

The ledger has both as tags of the call, ``team`` and ``end_user``. The tag ``end_user`` is a keyed hash: clients may
name their users by personal data, such as an address, which must not be logged.
"""

import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from gateway.access import Client
from gateway.core.calls import Level
from gateway.core.errors import KeyUnusable
from gateway.core.reports import SoleUser
from gateway.limits import level_of_end_user, level_of_key, level_of_team
from gateway.settings import EndUserSettings, Settings, signing_secret
from providers import UNREADABLE

TEAM, END_USER = "team", "end_user"
_NAMED = ("safety_identifier", "user")  # OpenAI's field, and its older one
_METADATA = "metadata"
_LONGEST = 512  # characters
_ID_BYTES = 12

MOST_KNOWN = 4_096  # clients, and end users, with cached levels

_text = msgspec.json.Decoder(str | None)


# Claude Code names its user and the session: until 2.1.77 in the first form, since then as an object in JSON. The end
# user is the person: the account, if there is one, else the device.
_CLAUDE_CODE = re.compile(r"user_([0-9a-f]{64})_account_([\w-]*)_session_([\w-]+)")


class ClaudeCode(msgspec.Struct):
    """The user of a request, as named by Claude Code."""

    device_id: str
    session_id: str
    account_uuid: str | None = None


_claude_code = msgspec.json.Decoder(ClaudeCode)


def claude_code_in(name: str) -> ClaudeCode | None:
    """Return the parts of an end user's ``name`` in one of Claude Code's forms; None for any other name."""
    if (parts := _CLAUDE_CODE.fullmatch(name)) is not None:
        return ClaudeCode(parts[1], parts[3], parts[2])
    if name.startswith("{"):
        with suppress(*UNREADABLE):
            return _claude_code.decode(name)
    return None


def person_in(name: str) -> str:
    """Return the person in an end user's ``name`` to which an agent adds its session; any other name unchanged."""
    claude_code = claude_code_in(name)
    return name if claude_code is None else claude_code.account_uuid or claude_code.device_id or name


class _Metadata(msgspec.Struct):
    user_id: str | None = None  # Anthropic's


_metadata = msgspec.json.Decoder(_Metadata)


# Codex and Gemini CLI name no user but their installation, the same in all sessions (openai/codex, codex-rs/core/src/
# responses_metadata.rs; google-gemini/gemini-cli, packages/core/src/core/contentGenerator.ts: 2026-11-28).
_CLIENT_METADATA = "client_metadata"
_GEMINI_CLI = "x-gemini-api-privileged-user-id"


class _ClientMetadata(msgspec.Struct):
    installation: str | None = msgspec.field(name="x-codex-installation-id", default=None)


_client_metadata = msgspec.json.Decoder(_ClientMetadata)


class EndUsers:
    """The end users of one team, or of a client without a team: their ids and their limits."""

    def __init__(
        self, scope: str, rules: EndUserSettings, secret: bytes, known: "dict[str, tuple[str, Level]]", zone: str
    ) -> None:
        """``scope``: the owner of the account, the team or else the client. ``known``: the cache for all scopes."""
        self._zone = zone
        self.header = rules.header
        self._scope = scope
        self._secret = secret
        self._limits = rules.by_name
        self._named = {name: limits.by_name for name, limits in rules.named.items()}
        self._known = known  # by scope and the clients' own name, which is kept in memory only

    @property
    def named(self) -> dict[str, str]:
        """The end users named in the configuration, by their hash."""
        return {self.level(name)[0]: name for name in self._named}

    def level(self, name: str) -> tuple[str, Level]:
        """Return the hash of an end user, and the end user's level."""
        scoped = f"{self._scope}\0{name}"
        known_level = self._known.get(scoped)
        if known_level is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            encoded_name = scoped.encode(errors="surrogateescape")
            digest = hmac.digest(self._secret, b"holeshot end user " + encoded_name, "sha256")[:_ID_BYTES]
            end_user = urlsafe_b64encode(digest).decode()
            level = level_of_end_user(self._scope, end_user, self._named.get(name, self._limits), self._zone)
            known_level = self._known[scoped] = end_user, level
        return known_level

    def level_of(self, end_user: str) -> Level:
        """Return the level of the end user with this hash."""
        name = self.named.get(end_user)
        limits = self._limits if name is None else self._named[name]
        return level_of_end_user(self._scope, end_user, limits, self._zone)


class EndUser(msgspec.Struct, frozen=True):
    """Finds the end user of one request. ``said``: the name in the request's key or header; None without one.

    ``is_fixed``: the key names its end user, and its requests cannot name another.
    """

    users: EndUsers
    said: str | None
    is_fixed: bool

    def of(self, fields: Mapping[str, msgspec.Raw]) -> tuple[str, Level] | None:
        """Return the hash and level of the end user named in ``fields`` or by ``said``; None without an end user."""
        name = self.said if self.is_fixed else named_in(fields) or self.said or _installation_in(fields)
        return self.users.level(name) if name else None


_Payer = tuple[Mapping[str, float], Sequence[Level], EndUsers | None]  # limits, levels, and the finder of end users


class Payers:
    """The configured teams and rules for end users."""

    def __init__(self, settings: Settings) -> None:
        self._zone = settings.limits_zone
        self._teams = {name: level_of_team(name, team.by_name, self._zone) for name, team in settings.teams.items()}
        self._secret = signing_secret(settings).encode()
        self._end_users = settings.end_users
        self._ids: dict[str, tuple[str, Level]] = {}
        self._of_teams = {
            name: EndUsers(self._teams[name].owner, rules, self._secret, self._ids, self._zone)
            for name, team in settings.teams.items()
            if (rules := team.end_users or settings.end_users) is not None
        }
        # By the client's name and team. An entry has the client's limits, and counts only for this object of limits: a
        # client may have brought keys, and the person of a token may be in another team.
        self._known: dict[tuple[str | None, str | None], _Payer] = {}
        self._names: dict[str, dict[str, str]] = {}  # the configured names by hash, for each scope in use
        self.is_used = bool(settings.teams) or settings.end_users is not None

    @property
    def teams(self) -> Sequence[tuple[str, Level]]:
        """The teams by name, each with its limits."""
        return [*self._teams.items()]

    def name_of(self, end_user: str, team: str | None, client: str | None) -> str | None:
        """Return the configured name of the end user with this hash; None without a name.

        ``client`` is used if there is no team.
        """
        scope = _scope_of(team, client)
        if scope not in self._names:
            users = self._users_of(team, client)
            self._names[scope] = {} if users is None else users.named
        return self._names[scope].get(end_user)

    def level_of_end_user(self, end_user: str, team: str | None, client: Client | None) -> Level | None:
        """Return the level of the end user with this hash; None: the team or client has no limits of end users."""
        zone = self._zone if client is None else client.zone or self._zone
        users = self._users_of(team, None if client is None else client.name, zone)
        return None if users is None else users.level_of(end_user)

    def _users_of(self, team: str | None, client: str | None, zone: str | None = None) -> EndUsers | None:
        if team is not None:
            return self._of_teams.get(team)
        return self._of_keys(_scope_of(team, client), zone or self._zone)

    def levels(self, client: Client) -> Sequence[Level]:
        """Return the levels known before the body is read: the key's and its team's; none if neither has limits.

        Raises:
            KeyUnusable: the key's team is not configured.

        """
        return self._of(client)[1]

    def own(self, client: Client) -> SoleUser | None:
        """Return the end user whose calls a person sees; None without a person, or if end users are not told apart.

        Raises:
            KeyUnusable: the person's team is not configured.

        """
        users = self._of(client)[2]
        if users is None or client.name is None or client.end_user is None:
            return None
        return SoleUser(client.name, client.team, users.level(client.end_user)[0])

    def level_of(self, client: Client, own: SoleUser) -> Level | None:
        """Return the level of a person of the configured ``client``; None without limits of end users."""
        try:
            users = self._of(msgspec.structs.replace(client, team=own.team))[2]
        except KeyUnusable:  # the team is not configured any more
            return None
        return None if users is None else users.level_of(own.end_user)

    def tags(self, tags: Mapping[str, str]) -> Mapping[str, str]:
        """Return the ``tags`` of a client without ``team`` and ``end_user``, which only the gateway sets."""
        if not tags or not self.is_used:
            return tags
        return {name: value for name, value in tags.items() if name not in (TEAM, END_USER)}

    def end_user(self, client: Client, headers: Mapping[str, str]) -> EndUser | None:
        """Return the finder of the end user of a request; None if end users have no limits.

        End users are counted within the client's team, or within a client without a team.

        Raises:
            KeyUnusable: the key's team is not configured.

        """
        users = self._of(client)[2]
        if users is None:
            return None
        name = client.end_user or (None if users.header is None else headers.get(users.header))
        name = name or headers.get(_GEMINI_CLI, "")[:_LONGEST]
        return EndUser(users, name, client.end_user is not None)

    def _of(self, client: Client) -> _Payer:
        """Return the cached entry of a client: a changed key makes a new ``Client``, and a reload new ``Payers``."""
        key = client.name, client.team
        payer = self._known.get(key)
        if payer is None or payer[0] is not client.limits:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            payer = self._known[key] = (client.limits, *self._found(client))
        return payer

    def _found(self, client: Client) -> tuple[Sequence[Level], EndUsers | None]:
        zone = client.zone or self._zone
        level = level_of_key(client.name, client.limits, zone)
        if client.team is not None:
            team = self._teams.get(client.team)
            if team is None:
                raise KeyUnusable(f"the team {client.team!r} of this key is not configured; ask the operator")
            return (level, team), self._of_teams.get(client.team)
        users = self._of_keys(level.owner, zone)
        return (level,) if client.limits or users is not None else (), users

    def _of_keys(self, scope: str, zone: str) -> EndUsers | None:
        return None if self._end_users is None else EndUsers(scope, self._end_users, self._secret, self._ids, zone)


def _scope_of(team: str | None, client: str | None) -> str:
    return (level_of_key(client, {}) if team is None else level_of_team(team, {})).owner


def named_in(fields: Mapping[str, msgspec.Raw]) -> str | None:
    """Return the client's own name of the end user in a request; None without a name."""
    try:
        for field in _NAMED:
            if field in fields and (name := (_text.decode(fields[field]) or "").strip()):
                return person_in(name)[:_LONGEST]
    except UNREADABLE:
        return None  # the provider reports the error
    return person_in((user_id_of(fields) or "").strip())[:_LONGEST] or None


def _installation_in(fields: Mapping[str, msgspec.Raw]) -> str | None:
    """Return the installation of Codex that sends the request; None for another program."""
    if _CLIENT_METADATA not in fields:
        return None
    try:
        return (_client_metadata.decode(fields[_CLIENT_METADATA]).installation or "")[:_LONGEST] or None
    except UNREADABLE:
        return None  # the provider reports the error


def user_id_of(fields: Mapping[str, msgspec.Raw]) -> str | None:
    """Return the name of the end user in the metadata of a request; None without a name."""
    try:
        return _metadata.decode(fields[_METADATA]).user_id if _METADATA in fields else None
    except UNREADABLE:
        return None  # likewise
