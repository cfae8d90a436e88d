"""The errors about clients' keys: those that clients receive, and those with which calls of ended keys are cut."""

from gateway.errors import ApiError, ClientDisconnected, NoKey, Unauthorized


class KeyExpired(Unauthorized):
    """The key was good until it expired. ``client`` had it."""

    code = "key_expired"

    def __init__(self, message: str, *, client: str | None = None) -> None:
        super().__init__(message)
        self.client = client


class NotSignedIn(NoKey):
    """The page asks who has signed in, and nobody has. No refusal: the page asks this before it asks for a key."""


class SessionEnded(Unauthorized):
    """The session of a browser is over, or its key was replaced or revoked. It is no guess at a key."""

    code = "session_ended"


class HeaderIgnored(Unauthorized):
    """A header names who has signed in at a proxy, but it is not believed, and nobody has signed in here."""

    code = "header_ignored"


class KeyUnusable(ApiError):
    """The database has the key, but this version cannot use the settings of its client."""

    status = 503
    type = "service_unavailable"
    code = "key_unusable"


class KeysNotLoaded(ApiError):
    """The keys could not be read from the database yet, so whether this one is good is not known."""

    status = 503
    type = "service_unavailable"
    code = "keys_not_loaded"


class KeysUnreachable(ApiError):
    """The database cannot be asked, so keys can be neither listed nor changed. Calls go on."""

    status = 503
    type = "service_unavailable"
    code = "keys_unreachable"


class KeyConflict(ApiError):
    """The change contradicts what there is: a name that is taken, a client of the file."""

    status = 409
    type = "invalid_request_error"
    code = "conflict"


class ClientNotFound(ApiError):
    """No client has this name, or no key of it is valid any more."""

    status = 404
    type = "invalid_request_error"
    code = "client_not_found"


class CutByRevocation(ClientDisconnected):
    """The call was cut because its key was revoked, replaced or removed."""

    code = "key_revoked"


class CutByExpiry(ClientDisconnected):
    """The call was cut because its key expired."""

    code = "key_expired"
