"""Write providers/models.json: the fields that the gateway uses from litellm's table of prices and abilities."""

import json
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from providers.datasheets import fields

TABLE = "model_prices_and_context_window_backup.json"
TARGET = Path(__file__).resolve().parents[1] / "providers" / "models.json"


def main() -> None:
    """Write the extract with one model per line, so that a changed price is one changed line in a diff."""
    spec = find_spec("litellm")  # not imported: the import would download a newer table
    folder = next(iter(spec.submodule_search_locations or ()), None) if spec else None
    if folder is None:
        sys.exit("litellm is not installed")
    models = json.loads((Path(folder) / TABLE).read_text(encoding="utf-8"))
    kept = {name: {field: row[field] for field in fields() if field in row} for name, row in sorted(models.items())}
    kept.pop("sample_spec", None)
    source = {
        "name": "litellm",
        "version": version("litellm"),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "url": "https://github.com/BerriAI/litellm",
        "license": "MIT License, Copyright (c) 2023 Berri AI",
    }
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in kept.items())
    TARGET.write_text(f'{{"source": {json.dumps(source)}, "models": {{\n{lines}\n}}}}\n', encoding="utf-8")
    sys.stderr.write(f"{len(kept)} models of litellm {source['version']} in {TARGET.name}\n")


if __name__ == "__main__":
    main()
