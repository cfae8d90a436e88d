"""Who is asked next after a refusal, and in which words: the steps at one deployment."""

from gateway.core.attempts import Role
from gateway.racing.other_forms import Again
from providers import ErrorKind, UpstreamError

NOT_AGAIN = "its deployment was not asked again"

# As what a request is recorded that another one repeats in its place: it counts against nobody, and costs nothing.
_REFUSED_AS = {Role.KEY: ErrorKind.KEY_REFUSED, Role.FORM: ErrorKind.FORM_REFUSED}


def chosen_by_upstream(error: UpstreamError) -> Again | None:
    """Return how a request is sent again whose upstream has chosen that, as it keeps what was tried of it."""
    if error.has_another_key:
        return Again(Role.KEY)
    return Again(Role.FORM) if error.has_another_form else None


def recorded(error: UpstreamError, again: Again | None) -> UpstreamError:
    """Return the error of an attempt after which its deployment is asked ``again``."""
    kind = None if again is None else _REFUSED_AS.get(again.role)
    return error if kind is None else error.again(kind)
