"""Renders a running call's request for a deployment in another API, after it has refused the first API.

Handed to the race as an object, as ``gateway.racing`` may not import code that fits requests to deployments.
"""

from collections.abc import Mapping, Sequence

import msgspec

from gateway.api.fitting import fitted
from gateway.api.request import Needs
from gateway.api.resolved_model import LONG_BYTES
from gateway.api.translations import Question
from gateway.core.calls import AS_ASKED, Call
from gateway.core.errors import ApiError
from gateway.fleet import Deployment
from gateway.http import values_of
from gateway.racing import RewordedRequest
from gateway.settings import DataPolicy
from providers import aside, finished
from providers.dialects import Dialect, without_pictures


class Rewording:
    """``most_values``: the maximum of JSON values in a request that is translated."""

    def __init__(self, most_values: int) -> None:
        self.most_values = most_values

    async def __call__(self, call: Call, deployment: Deployment, dialect: Dialect) -> RewordedRequest | None:
        """Return the request; None if its translation loses something that keeps ``deployment`` out."""
        if sum(map(len, call.request.fields.values())) <= LONG_BYTES:
            return self._reworded(call, deployment, dialect)
        return await aside(lambda: self._reworded(call, deployment, dialect))

    def _reworded(self, call: Call, deployment: Deployment, dialect: Dialect) -> RewordedRequest | None:
        values = finished(values_of(call.request.fields.values(), self.most_values))
        needs = Needs(call.traits.prompt_tokens)  # the deployment can answer, as it was asked
        client_request, most = call.request, self.most_values
        fields, pictures = _seen(call, deployment)
        question = Question(call.decision.model, client_request.dialect, fields, needs, DataPolicy(), values, most)
        can = msgspec.structs.replace(deployment.capabilities, context_tokens=None)  # as above
        there = msgspec.structs.replace(
            deployment, apis=frozenset((dialect.name,)), speaks=(dialect,), learnt=None, capabilities=can
        )
        try:
            fitting = fitted(question, [there])
        except ApiError:
            return None
        rendered = fitting.rendered.get(deployment.name, AS_ASKED)
        sent = fields if rendered.fields is None else rendered.fields
        return RewordedRequest(dialect, sent, (*rendered.dropped, *pictures))


def _seen(call: Call, deployment: Deployment) -> tuple[Mapping[str, msgspec.Raw], Sequence[str]]:
    """Return the client's request, without the pictures that ``deployment`` is not sent; and where these stand."""
    fields, dropped = call.request.fields, call.rendered.get(deployment.name, AS_ASKED).dropped
    left = without_pictures(call.request.dialect.requests.prompt, fields) if dropped else None
    if left is None or left.losses[0].field not in dropped:
        return fields, ()
    return left.fields, [loss.field for loss in left.losses]
