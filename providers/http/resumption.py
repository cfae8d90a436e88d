"""TLS sessions, resumed: the connection that replaces one that a lost race has cost shakes hands for less.

A resumed handshake has no certificates to send, read and check. OpenSSL makes a whole one where the server does not
know the session any more. A session is resumed only under the name that its certificate was checked for, and only in
the context that checked it.
"""

import ssl
from typing import Any


def resume_sessions(context: ssl.SSLContext) -> None:
    """Have the connections of ``context`` resume the session of the last whole handshake with the same name."""
    context.sslobject_class = type("Resuming", (_Resuming,), {"whole": {}, "sessions": {}})


class _Resuming(ssl.SSLObject):
    whole: dict[str | None, ssl.SSLObject]  # by name, the last whole handshake of which no session was taken yet
    sessions: dict[str | None, ssl.SSLSession]  # by name
    _begun = False

    def do_handshake(self) -> None:
        """Shake hands; whoever drives it calls this again until it does not raise."""
        name = self.server_hostname
        if not self._begun:
            self._begun = True
            self._resume(name)
        super().do_handshake()
        if not self.session_reused:
            self.whole[name] = self

    def getpeercert(self, binary_form: bool = False) -> Any:
        """Return None: nobody looks at a certificate that OpenSSL has checked, and to parse one takes 40 µs."""
        del binary_form

    def _resume(self, name: str | None) -> None:
        whole = self.whole.pop(name, None)
        latest = None if whole is None else whole.session  # its tickets have followed it by now
        if latest is not None:
            self.sessions[name] = latest
        session = self.sessions.get(name)
        if session is not None:
            self.session = session
