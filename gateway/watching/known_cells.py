"""The cells of all models, deployments and clients: each is looked up once, until the configuration changes."""

from collections.abc import Callable, Mapping

from gateway.watching.cells import ClientCells, DeploymentCells, ModelCells
from gateway.watching.series import Series

ADHOC_LABEL = "adhoc"  # names invented by clients must not become time series
ANONYMOUS = "anonymous"  # calls without a key
MOST_CLIENTS = 1000  # with series of their own; an admin may make any number of keys
OTHER_CLIENTS = "(others)"


class KnownCells:
    """The cells of the models that are configured now, and of those who call."""

    __slots__ = ("_deployments", "_known_models", "_looked_up_in", "_models", "_series", "clients")

    def __init__(self, series: Series, known_models: Callable[[], Mapping[str, object]]) -> None:
        self._series = series
        self._known_models = known_models
        self._looked_up_in: object = None  # the known models for which the following was looked up
        self._models: dict[str, ModelCells] = {}
        self._deployments: dict[tuple[str, str], DeploymentCells] = {}  # by model and name, only known ones
        self.clients: dict[str | None, ClientCells] = {}

    def model(self, name: str) -> ModelCells:
        """Return the cells of a model; all unknown ones share a label."""
        models = self._known_models()
        if models is not self._looked_up_in:
            self._look_again(models)
        found = self._models.get(name)
        if found is None:
            known = name in models
            found = ModelCells(self._series, name if known else ADHOC_LABEL)
            if known:
                self._models[name] = found
        return found

    def deployment(self, model: str, name: str) -> DeploymentCells:
        """Return the cells of a deployment of ``model``; those of unknown models share a label."""
        models = self._known_models()
        if models is not self._looked_up_in:
            self._look_again(models)
        found = self._deployments.get((model, name))
        if found is None:
            known = model in models
            found = DeploymentCells(self._series, name if known else ADHOC_LABEL)
            if known:
                self._deployments[model, name] = found
        return found

    def client(self, name: str | None) -> ClientCells:
        """Return the cells of a client that is not among ``clients``; None: calls without a key."""
        if len(self.clients) < MOST_CLIENTS:
            made = self.clients[name] = ClientCells(self._series, ANONYMOUS if name is None else name)
            return made
        return ClientCells(self._series, OTHER_CLIENTS)

    def _look_again(self, models: Mapping[str, object]) -> None:
        """Look everything up again after a change of the configuration."""
        self._looked_up_in = models
        self._models, self._deployments = {}, {}
