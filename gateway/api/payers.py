"""Whose limits count a call besides its key's: those of the key's team, and of the end user whom the request names.

The ledger has both as tags of the call, ``team`` and ``end_user``. An end user's is a keyed hash: what clients call
their users may be an address, and the log shall not have it.
"""

import hmac
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence

import msgspec

from gateway.api.client import Client
from gateway.core.calls import Level
from gateway.core.errors import KeyUnusable
from gateway.limits import level_of_end_user, level_of_key, level_of_team
from gateway.settings import EndUserSettings, Settings, signing_secret

TEAM, END_USER = "team", "end_user"
_NAMED = ("safety_identifier", "user")  # OpenAI's word, and its older one
_METADATA = "metadata"
_LONGEST = 512  # characters
_ID_BYTES = 12

_text = msgspec.json.Decoder(str)


class _Metadata(msgspec.Struct):
    user_id: str | None = None  # Anthropic's


_metadata = msgspec.json.Decoder(_Metadata)


class EndUser(msgspec.Struct, frozen=True):
    """How the end user of one request is found. ``said`` is of its key or its header, and None where neither names one.

    ``is_fixed``: the key names its end user, whatever its requests say.
    """

    scope: str  # the owner of the team's account, else of the key's
    rules: EndUserSettings
    secret: bytes
    said: str | None
    is_fixed: bool

    def of(self, fields: Mapping[str, msgspec.Raw]) -> tuple[str, Level] | None:
        """Return the hash of the end user whom a request with these ``fields`` names, and its level; else None."""
        name = self.said if self.is_fixed else named_in(fields) or self.said
        if not name:
            return None
        end_user = _hashed(self.secret, self.scope, name)
        own = self.rules.named.get(name)
        return end_user, level_of_end_user(self.scope, end_user, (own or self.rules).by_name)


class Payers:
    """The teams and the rules for end users that are configured."""

    def __init__(self, settings: Settings) -> None:
        self._teams = {name: level_of_team(name, team.by_name) for name, team in settings.teams.items()}
        self._of_teams = {name: team.end_users or settings.end_users for name, team in settings.teams.items()}
        self._end_users = settings.end_users
        self._secret = signing_secret(settings).encode()
        self._names: dict[str, dict[str, str]] = {}  # by hash, of each scope that was asked for
        self.is_used = bool(settings.teams) or settings.end_users is not None

    @property
    def teams(self) -> Sequence[tuple[str, Level]]:
        """The teams by name, each with its limits."""
        return [*self._teams.items()]

    def name_of(self, end_user: str, team: str | None, client: str | None) -> str | None:
        """Return what the configuration calls the end user with this hash; None if it does not name it.

        ``client`` matters where there is no team.
        """
        scope = (level_of_key(client, {}) if team is None else level_of_team(team, {})).owner
        if scope not in self._names:
            rules = self._end_users if team is None else self._of_teams.get(team)
            named = () if rules is None else rules.named
            self._names[scope] = {_hashed(self._secret, scope, name): name for name in named}
        return self._names[scope].get(end_user)

    def levels(self, client: Client) -> Sequence[Level]:
        """Return what is known before the body of a request: its key and its team; nothing where none has limits.

        Raises:
            KeyUnusable: the key's team is not configured.

        """
        own = level_of_key(client.name, client.limits)
        if client.team is None:
            return (own,) if client.limits or self._end_users is not None else ()
        team = self._teams.get(client.team)
        if team is None:
            raise KeyUnusable(f"the team {client.team!r} of this key is not configured; ask the operator")
        return own, team

    def tags(self, client: Client, tags: Mapping[str, str]) -> dict[str, str]:
        """Return ``tags`` with the client's team. A client can name neither another nor an end user so."""
        own = (
            {name: value for name, value in tags.items() if name not in (TEAM, END_USER)}
            if self.is_used
            else dict(tags)
        )
        return own if client.team is None else {**own, TEAM: client.team}

    def end_user(self, client: Client, levels: Sequence[Level], headers: Mapping[str, str]) -> EndUser | None:
        """Return how the end user of a client's request is found; None where end users have no limits.

        ``levels`` are the client's. End users are counted within the last one: its team's, if it has one.
        """
        rules = self._end_users if client.team is None else self._of_teams.get(client.team)
        if rules is None:
            return None
        said = client.end_user or (None if rules.header is None else headers.get(rules.header))
        return EndUser(levels[-1].owner, rules, self._secret, said, client.end_user is not None)


def _hashed(secret: bytes, scope: str, name: str) -> str:
    known = f"{scope}\0{name}".encode(errors="surrogateescape")
    return urlsafe_b64encode(hmac.digest(secret, b"holeshot end user " + known, "sha256")[:_ID_BYTES]).decode()


def named_in(fields: Mapping[str, msgspec.Raw]) -> str | None:
    """Return the end user whom a request names, as its client calls them; None if it names none."""
    try:
        for field in _NAMED:
            if field in fields and (name := _text.decode(fields[field]).strip()):
                return name[:_LONGEST]
        user_id = _metadata.decode(fields[_METADATA]).user_id if _METADATA in fields else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None  # the provider says what is wrong with it
    return (user_id or "").strip()[:_LONGEST] or None
