"""Checks of targets: what they name exists, and the ledger has figures for as long as they look back."""

from collections.abc import Collection, Iterator, Mapping

from gateway.settings.explain import nearest
from gateway.settings.model import Settings
from gateway.settings.problems import Complaint
from gateway.settings.slo import TargetSettings


def check_targets(settings: Settings) -> Iterator[Complaint]:
    """Yield what is wrong with the targets of the file."""
    clients = settings.clients if settings.keys == "file" else None  # the database may have more
    models = settings.models or None  # without any, the simulated fleet has its own
    yield from unknown_subjects(settings.slo, models, clients, settings.providers)
    kept = settings.ledger.keep_rollups_days
    for name, target in settings.slo.items():
        if kept is not None and kept < target.days:
            yield Complaint(
                ("slo", name, "days"),
                f"{target.days} days are more than the {kept:g} for which sums are kept: "
                "raise ledger.keep_rollups_days, or lower days",
            )


def doubtful_targets(settings: Settings) -> Iterator[str]:
    """Yield what targets of models say in vain: who answers all at once has neither a speed nor gaps."""
    for name, target in settings.slo.items():
        model = None if target.model is None else settings.models.get(target.model)
        vain = [field for field in ("tok_s", "gap_ms") if getattr(target, field) is not None]
        if model is not None and vain and not any(each.upstream_stream for each in model.deployments if each.enabled):
            yield (
                f"slo {name!r}: no deployment of model {target.model!r} streams, so {' and '.join(vain)} cannot be"
                " judged: every answer counts as fast enough"
            )


def unknown_subjects(
    slo: Mapping[str, TargetSettings],
    models: Collection[str] | None,
    clients: Collection[str] | None,
    providers: Collection[str],
) -> Iterator[Complaint]:
    """Yield the models and clients that targets name and that are not configured; None: they cannot be known.

    A request may also name a deployment as its model, ``provider/model``.
    """
    for name, target in slo.items():
        provider, _, rest = (target.model or "").partition("/")
        named = None if rest and provider in providers else target.model
        for field, word, known in (("model", named, models), ("client", target.client, clients)):
            if word is not None and known is not None and word not in known:
                yield Complaint(("slo", name, field), f"there is no {field} {word!r}; {nearest(word, known)}")
