"""A request in other words than its client sent, as one deployment gets it."""

from collections.abc import Awaitable, Callable, Mapping

import msgspec

from gateway.core.calls import AS_ASKED, Call
from gateway.fleet import Deployment
from providers.dialects import Dialect, Malformed, Wording, named_in


class RewordedRequest(msgspec.Struct, frozen=True):
    """A call's request as one deployment gets it in another API."""

    spoken: Dialect
    fields: Mapping[str, msgspec.Raw]
    dropped: tuple[str, ...]

    def of(self, call: Call, deployment: str) -> Call:
        """Return ``call`` with this request for ``deployment``."""
        return call.rendered_as(deployment, fields=self.fields, dropped=self.dropped, spoken=self.spoken, apart=None)


# Renders a call's request for a deployment in a dialect; None: impossible, or parts that must stay would be lost.
Reword = Callable[[Call, Deployment, Dialect], Awaitable[RewordedRequest | None]]


def as_reworded(call: Call, deployment: Deployment, wording: Wording) -> RewordedRequest:
    """Return the request of ``call`` in another ``wording``, in the API in which ``deployment`` is asked."""
    dropped = call.rendered.get(deployment.name, AS_ASKED).dropped
    if dropped:  # some fields are taken once the reasoning beside them is gone
        was, still = (_lost_there(call, deployment, sent) for sent in (call.sent_to(deployment.name), wording.fields))
        dropped = tuple(field for field in dropped if field not in was or field in still)
    lost = (*dropped, *(loss.field for loss in wording.losses))
    return RewordedRequest(deployment.spoken_in(call), wording.fields, lost)


def _lost_there(call: Call, deployment: Deployment, fields: Mapping[str, msgspec.Raw]) -> frozenset[str]:
    """Return the parts of ``fields`` that the API of ``deployment`` cannot express, by the client's names."""
    dialect, request = deployment.spoken_in(call), call.request
    try:
        losses = deployment.upstream.losses(dialect, deployment.model, fields)
    except Malformed:  # the provider reports the error in its own words
        return frozenset()
    return frozenset(named_in(request.dialect, dialect, request.fields, loss.field) for loss in losses)
