"""Encrypted or signed reasoning, which only its maker can read: who cannot read whose, and requests without any."""

import hashlib
from collections.abc import Collection, Mapping

from gateway.core.calls import Call, Maker
from gateway.fleet import Deployment
from gateway.racing.rewording import RewordedRequest, as_reworded
from providers import (
    Apart,
    Fact,
    Kind,
    LearntFacts,
    Request,
    UpstreamError,
    maker_of,
    reads_thoughts,
    why_of,
)
from providers.dialects import Malformed, Wording

_DIGEST_CHARS = 16
_TOLD = "told in its answer"


def reasoning_of(maker: Maker) -> Fact:
    """Return the fact that the reasoning of ``maker`` cannot be read. The fact has a digest of the maker's key."""
    account = "" if maker.key_name is None and maker.tenant is None else digest(f"{maker.key_name}\n{maker.tenant}")
    return Fact(Kind.REASONING, maker.deployment, value=account)


def note_bound(deployment: Deployment, call: Call, error: UpstreamError) -> None:
    """Note that ``deployment`` has refused others' reasoning: each maker whose reasoning was sent, else the newest."""
    if call.traits.maker is None or (learnt := deployment.remembers_in) is None:
        return
    elsewhere = [each for each in call.traits.makers if each.deployment.partition("/")[0] != deployment.provider]
    suspects = [each for each in elsewhere if not is_unread(each, deployment, call)]  # other reasoning was not sent
    for maker in suspects or [call.traits.maker]:
        learnt.note(deployment.model, reasoning_of(maker), client=call.caller.client, why=why_of(error))


def cannot_read(maker: Maker, deployment: Deployment, client: str | None) -> bool:
    """Whether ``deployment`` is known to refuse the reasoning of ``maker`` when ``client`` sends it."""
    learnt = deployment.learnt
    return learnt is not None and reasoning_of(maker) in learnt.of(deployment.model, client)


def is_bound_elsewhere(deployment: Deployment, maker: Maker, client: str | None = None) -> bool:
    """Whether the vendor of ``deployment`` would silently drop reasoning of ``maker``, which is another account.

    Known from the settings, or from the vendor's answers.
    """
    if "account" not in deployment.traits.bound:
        return False
    if deployment.provider != maker.deployment.partition("/")[0] and cannot_read(maker, deployment, client):
        return True
    if maker.account is None:  # unknown for reasoning that is older than the memory of accounts
        return maker.deployment.partition("/")[0] != deployment.provider
    return maker.account != deployment.account


def is_unread(maker: Maker, deployment: Deployment, call: Call) -> bool:
    """Whether ``deployment`` refuses the reasoning of ``maker``: known from the two models, or from a refusal.

    A refusal is known for an hour. Then the deployment gets such reasoning again, as it may be able to read it by then.
    """
    if deployment.provider == maker.deployment.partition("/")[0]:
        return False
    is_its = maker.made or maker_of(maker.model) not in {"", "open"}  # else any model takes the reasoning
    reads = reads_thoughts(deployment.same_as or deployment.model, maker.model) if is_its else None
    if reads is None:
        return cannot_read(maker, deployment, call.caller.client)
    return not reads


def told_apart(made: Maker, by: Maker, learnt: LearntFacts | None, request: Request) -> None:
    """Note that, by the vendor's answer to a ``request`` with the key of ``by``, ``made`` is of another account.

    If one provider has both keys, the gateway learns that these two keys are of two accounts.
    """
    if learnt is None or made.tenant is not None or by.tenant is not None:
        return
    fact, names = reasoning_of(made), (made.key_name, by.key_name)
    if made.deployment.partition("/")[0] == by.deployment.partition("/")[0]:
        if None in names or names[0] == names[1]:
            return
        one, other = sorted(filter(None, names))
        fact = Fact(Kind.ACCOUNT, one, value=other)
    learnt.note(request.model, fact, client=request.client, why=_TOLD)


def keys_apart(maker: Maker, deployment: Deployment, client: str | None) -> frozenset[str]:
    """Return the names of the provider's keys that are known to be of another account than that of ``maker``."""
    learnt = deployment.learnt
    if learnt is None or not learnt.is_any or (name := maker.key_at(deployment.provider)) is None:
        return frozenset()
    pairs = [{fact.field, fact.value} for fact in learnt.of(deployment.model, client) if fact.kind is Kind.ACCOUNT]
    return frozenset[str]().union(*(pair - {name} for pair in pairs if name in pair))


def apart_from(maker: Maker, call: Call, deployment: Deployment) -> Apart | None:
    """Return the request for those keys of ``deployment`` that cannot read ``maker``'s reasoning; None: all can."""
    names = keys_apart(maker, deployment, call.caller.client)
    if not names or (wording := _without_reasoning(call, deployment)) is None:
        return None
    return Apart(names, wording.fields, tuple(loss.field for loss in wording.losses))


def read_after_all(maker: Maker, learnt: LearntFacts | None, request: Request) -> None:
    """Forget that the model of ``request`` cannot read the reasoning of ``maker``."""
    if learnt is not None and (fact := reasoning_of(maker)) in learnt.of(request.model, request.client):
        learnt.forget(request.model, (fact,), request.client)


def tells_each_apart(deployment: Deployment, call: Call) -> bool:
    """Whether single pieces of reasoning can be left out of a request to ``deployment``."""
    return deployment.spoken_in(call).requests.thoughts.without_those is not None


def without_unread(
    call: Call, deployment: Deployment, makers: Mapping[bytes, Maker], refused: Mapping[bytes, Collection[str]]
) -> RewordedRequest | None:
    """Return the request without the reasoning that ``deployment`` refuses or drops; None: there is no such reasoning.

    ``makers``: the maker of each piece of reasoning, by the hash of the piece. ``refused``: by the same
    hash, the providers that have refused a piece of an unknown maker.
    """
    of_unread = {
        maker
        for maker in {*makers.values()}
        if is_unread(maker, deployment, call) or is_bound_elsewhere(deployment, maker, call.caller.client)
    }
    requests = deployment.spoken_in(call).requests
    without = requests.thoughts.without_those
    unread = {each for each, maker in makers.items() if maker in of_unread}
    unread |= {each for each, providers in refused.items() if deployment.provider in providers}
    if not unread or without is None or (requests.vendors.takes_quirks and deployment.upstream.refused_fields):
        return None  # the fields with reasoning are left out anyway
    fields = call.sent_to(deployment.name)
    try:
        wording = without(fields, frozenset(unread))
    except Malformed:  # the provider reports the error in its own words
        return None
    return as_reworded(call, deployment, wording) if wording.losses else None


def without_reasoning(call: Call, deployment: Deployment, edited_from: int = 0) -> RewordedRequest | None:
    """Return the request without reasoning that only its maker can read; None: the request has none.

    ``edited_from``: the first turn whose reasoning is left out, if the dialect can tell.
    """
    if (wording := _without_reasoning(call, deployment, edited_from)) is None:
        return None
    return as_reworded(call, deployment, wording)


def _without_reasoning(call: Call, deployment: Deployment, edited_from: int = 0) -> Wording | None:
    requests, fields = deployment.spoken_in(call).requests, call.sent_to(deployment.name)
    if edited_from and requests.thoughts.without_since is not None:
        wording: Wording | None = requests.thoughts.without_since(fields, edited_from)
    else:
        without = requests.thoughts.without_bound
        wording = None if without is None else without(fields)
    return wording if wording is not None and wording.losses else None


def digest(text: str) -> str:
    """Return a name for a text that a fact must not show: a key, a client's own word."""
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARS]
