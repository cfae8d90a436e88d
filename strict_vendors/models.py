"""What a model of a vendor takes: the APIs that have it, its limits, and how it thinks."""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

_DATE = re.compile(r"-20\d\d-?\d\d-?\d\d$|-latest$")


class Model(Struct, frozen=True):
    """One model. ``efforts`` are those that it may be told to think with: none of them if it does not think.

    ``usual`` is the effort when nothing is said; ``not_taken`` are fields that it refuses (each vendor knows how).
    """

    name: str = ""
    apis: frozenset[str] = frozenset({"chat", "responses"})
    context: int = 128_000  # tokens, of the prompt and the answer
    longest: int = 16_384  # tokens of an answer
    efforts: Sequence[str] = ()
    usual: str | None = None
    not_taken: frozenset[str] = frozenset()
    marks: frozenset[str] = frozenset()  # what its vendor's rules ask of it
    page: str = ""

    @property
    def thinks(self) -> bool:
        """Say whether it can think at all."""
        return bool(self.efforts)


class Models:
    """The models of a vendor. A date behind a name is a version of it."""

    def __init__(self, *models: Model) -> None:
        self._by_name = {model.name: model for model in models}
        self.names = list(self._by_name)

    def find(self, name: str) -> Model | None:
        """Return what is known of a model; None if there is none of this name."""
        if name in self._by_name:
            return self._by_name[name]
        if name.startswith("ft:"):  # https://platform.openai.com/docs/guides/fine-tuning: ft:BASE:org:suffix:id
            base = self.find(name.split(":")[1]) if name.count(":") >= 3 else None
            return structs.replace(base, name=name) if base else None
        known = self._by_name.get(_DATE.sub("", name))
        return structs.replace(known, name=name) if known else None


def alike(names: Sequence[str], model: Model, pages: Mapping[str, str] | None = None) -> list[Model]:
    """Return models of the same kind under several names."""
    return [structs.replace(model, name=name, page=(pages or {}).get(name, model.page)) for name in names]
