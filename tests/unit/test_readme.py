"""What the first pages show as a configuration works as it says."""

import re
from pathlib import Path

from providers import DatasheetTable, load_catalog

ROOT = Path(__file__).parents[2]
FIRST = [ROOT / "docs" / f"{name}.md" for name in ("start", "concepts", "production")]
PAGES = (ROOT / "README.md", *FIRST, *sorted((ROOT / "docs" / "using").glob("*.md")))
_BLOCK = re.compile(r"```yaml\n(.*?)```", re.DOTALL)
_DEPLOYMENT = re.compile(r"(?<![\w/.-])([a-z0-9_-]+)/([A-Za-z0-9][\w./-]*)")


def test_the_price_of_every_vendors_model_that_is_shown_is_known() -> None:
    catalog = load_catalog()
    shown = {
        (vendor.litellm_prefix, model)
        for page in PAGES
        for block in _BLOCK.findall(page.read_text(encoding="utf-8"))
        for provider, model in _DEPLOYMENT.findall(block)
        if (vendor := catalog.get(provider)) is not None and vendor.litellm_prefix is not None
    }
    assert ("groq", "openai/gpt-oss-120b") in shown
    unpriced = [key for key, sheet in DatasheetTable.shipped().look_up(shown).items() if sheet.price is None]
    assert unpriced == []
