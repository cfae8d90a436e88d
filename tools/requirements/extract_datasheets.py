"""Write providers/models/models.json: the prices and abilities in litellm's table that the gateway uses.

It fails on a number that is neither a price that `providers.models.listed_prices` knows nor one of `NO_PRICE`: a new
kind of price would else be overlooked, and calls booked too cheaply.
"""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from providers.models.datasheets import TableSource, kept, table_of
from providers.models.listed_prices import UPLIFTS, leaves, parse

TABLE = "model_prices_and_context_window_backup.json"
TARGET = Path(__file__).resolve().parents[2] / "providers" / "models" / "models.json"
NO_MODEL = frozenset({"sample_spec", "fallback_generalizations"})  # rows that explain the table, or guess

# The numbers that are no price of a call, each with the reason.
NO_PRICE: Mapping[str, str] = {
    "max_input_tokens": "a limit",
    "max_output_tokens": "a limit",
    "max_tokens": "a limit",
    "rpm": "a rate limit",
    "tpm": "a rate limit",
    "prompt_cache_min_tokens": "the shortest prompt that is cached",
    "output_vector_size": "the length of an embedding",
    "token_count_framing": "what a template adds, which the vendor's own count has",
    "token_count_responses_framing": "likewise",
    "token_count_responses_tool_framing": "likewise",
    "token_count_tool_framing": "likewise",
    "tiered_pricing[].range[]": "the sizes of prompts that a price holds for, read with it",
    "tiered_pricing[].max_results_range[]": "of search engines, which are no models",
    "tiered_pricing[].input_cost_per_query": "likewise",
    "off_peak_pricing.windows[].weekdays[]": "hours in which its prices hold, read with them",
    "search_free_requests.count": "free searches in a day, which nobody but the vendor can count",
    "metadata.original_pricing_per_hour": "what the price of a second was made of",
    "metadata.original_pricing_per_minute": "likewise",
    "input_dbu_cost_per_token": "Databricks' own units; their price in dollars is in the row",
    "output_dbu_cost_per_token": "likewise",
    "provider_specific_entry.realtime_ga_only": "a flag",
    "provider_specific_entry.transcription_json_or_text_only": "a flag",
    "provider_specific_entry.transcription_usage_duration": "a flag",
    "provider_specific_entry.minimax_free_input_images": "free pictures, which nobody but the vendor can count",
    "fedramp_uplift_multiplier": "a surcharge by contract, for which price_per_mtok has to be set",
}


def unread(models: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield each number that is neither a known price nor known to be none, with its row."""
    for name, row in models.items():
        for path, number in leaves(row):
            if re.sub(r"\[\d+\]", "[]", path) not in NO_PRICE and not _is_read(path, number, row):
                yield f"{name}: {path}: {number!r}"


def _is_read(path: str, number: float, row: Mapping[str, Any]) -> bool:
    return path in UPLIFTS or parse(path, number, row) is not None


def released(number: str) -> str:
    """Return the day on which a version of litellm was released, ISO, as the index of packages tells uv.

    Raises:
        SystemExit: it does not.

    """
    uv = str(Path(sys.executable).with_name("uv"))
    command = [uv, "pip", "compile", "--quiet", "--no-deps", "--no-header", "--format", "pylock.toml", "-"]
    told = subprocess.run(command, input=f"litellm=={number}\n", capture_output=True, text=True, check=False)
    packages = tomllib.loads(told.stdout).get("packages", []) if told.returncode == 0 else []
    days = [wheel["upload-time"] for each in packages for wheel in each.get("wheels", []) if "upload-time" in wheel]
    if not days:
        sys.exit(f"the release of litellm {number} has no known date; {told.stderr.strip() or 'the index says none'}")
    return f"{min(days):%Y-%m-%d}"


def main() -> None:
    """Write the extract with one model per line, so that a changed price is one changed line in a diff."""
    spec = find_spec("litellm")  # not imported: the import would download a newer table
    folder = next(iter(spec.submodule_search_locations or ()), None) if spec else None
    if folder is None:
        sys.exit("litellm is not installed")
    models = json.loads((Path(folder) / TABLE).read_text(encoding="utf-8"))
    models = {name: row for name, row in sorted(models.items()) if name not in NO_MODEL}
    if new := list(unread(models)):
        sys.exit("\n".join(("numbers that are neither prices nor in NO_PRICE (extract_datasheets.py):", *new)))
    source = TableSource(
        name="litellm",
        version=version("litellm"),
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        url="https://github.com/BerriAI/litellm",
        license="MIT License, Copyright (c) 2023 Berri AI",
        released=released(version("litellm")),
    )
    TARGET.write_bytes(table_of({name: kept(row) for name, row in models.items()}, source))
    sys.stderr.write(f"{len(models)} models of litellm {source.version} in {TARGET.name}\n")


if __name__ == "__main__":
    main()
