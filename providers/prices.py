"""What tokens cost: list prices from the table that ships inside litellm, read as a file without importing litellm.

Base prices only: the table's surcharges for very long prompts, and its discounts for batches, are not applied.
"""

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

import msgspec

_TABLE = "model_prices_and_context_window_backup.json"


class Price(msgspec.Struct, frozen=True):
    """US dollars per token."""

    input_usd: float
    output_usd: float
    cached_input_usd: float | None = None  # None: as input_usd


class _Row(msgspec.Struct, frozen=True):
    litellm_provider: str = ""
    input_cost_per_token: float | None = None
    output_cost_per_token: float | None = None
    cache_read_input_token_cost: float | None = None
    input_cost_per_token_cache_hit: float | None = None  # the older name of the same, DeepSeek's

    def price(self) -> Price | None:
        if self.input_cost_per_token is None:
            return None
        cached = self.cache_read_input_token_cost
        return Price(
            input_usd=self.input_cost_per_token,
            output_usd=self.output_cost_per_token or 0.0,  # embeddings have no output
            cached_input_usd=self.input_cost_per_token_cache_hit if cached is None else cached,
        )


_table_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_row_decoder = msgspec.json.Decoder(_Row)


class PriceTable:
    """A price table in litellm's format, kept on disk: it has thousands of rows, a gateway needs a handful.

    Each lookup reads the file (3 MB, some 5 ms) and keeps nothing of it, so look up all deployments at once.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path  # None: every price is unknown

    @classmethod
    def installed(cls) -> "PriceTable":
        """Return the table of the installed litellm, an empty one where there is none."""
        spec = find_spec("litellm")  # finds a top-level package without importing it
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            if (path := Path(folder) / _TABLE).is_file():
                return cls(path)
        return cls(None)

    def look_up(self, deployments: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Price | None]:
        """Return the price of each ``(litellm_prefix, model)``, None where the table has none.

        Raises:
            OSError, msgspec.DecodeError: the table cannot be read.

        """
        table = _table_decoder.decode(self._path.read_bytes()) if self._path else {}
        return {(prefix, model): _find(table, prefix, model) for prefix, model in deployments}


def cost_usd(
    price: Price | None, prompt_tokens: int | None, completion_tokens: int | None, cached_tokens: int | None = None
) -> float | None:
    """Return input and output tokens at their prices, in US dollars; None where the price or a count is unknown.

    ``cached_tokens`` are part of ``prompt_tokens``, ``completion_tokens`` include reasoning, as OpenAI counts.
    """
    if price is None or prompt_tokens is None or completion_tokens is None:
        return None
    cached = min(cached_tokens or 0, prompt_tokens)
    cached_usd = price.input_usd if price.cached_input_usd is None else price.cached_input_usd
    return (prompt_tokens - cached) * price.input_usd + cached * cached_usd + completion_tokens * price.output_usd


def _find(table: Mapping[str, msgspec.Raw], prefix: str, model: str) -> Price | None:
    """Return the price under ``prefix/model``, or under the bare name where that row is this vendor's."""
    if (row := _read(table.get(f"{prefix}/{model}"))) is not None:
        return row.price()
    row = _read(table.get(model))
    return row.price() if row is not None and _sells(row.litellm_provider, prefix) else None


def _sells(provider: str, prefix: str) -> bool:
    """Tell whether a row's provider is the vendor or one of its lines (``cohere_chat``, ``vertex_ai-llama_models``)."""
    return provider == prefix or provider.startswith((f"{prefix}_", f"{prefix}-"))


def _read(raw: msgspec.Raw | None) -> _Row | None:
    """Return a row, None where it is missing or not of the usual types."""
    if raw is None:
        return None
    try:
        return _row_decoder.decode(raw)
    except msgspec.ValidationError:
        return None
