"""Checks types as on macOS, in the files whose types may differ there: ``python -m tools.darwin``.

Most of the standard library is the same on both. So only files are looked at that import a module of which typeshed's
stubs say otherwise by ``sys.platform``, and of others nothing but that they are there: 3 s of CPU in place of 25.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("holeshot", "gateway", "providers")
# Of a file that is looked at alone, some types are not known; what is asked here is whether names are there.
_OPTIONS = (
    "--platform=darwin", "--cache-dir=.mypy_cache/darwin", "--follow-imports=skip", "--allow-subclassing-any",
    "--allow-untyped-decorators", "--no-warn-return-any", "--no-warn-unused-ignores",
    "--disable-error-code=has-type", "--disable-error-code=union-attr",
)  # fmt: skip
_DIFFERS = re.compile(r'sys\.platform (?:==|!=) "(?:linux|darwin)"')


def modules_that_differ(stubs: Path) -> frozenset[str]:
    """Return the modules of the standard library with names that one of the two platforms lacks."""
    found = (path for path in stubs.rglob("*.pyi") if _DIFFERS.search(path.read_text(encoding="utf-8")))
    named = (".".join(path.relative_to(stubs).with_suffix("").parts).removesuffix(".__init__") for path in found)
    return frozenset(name.removeprefix("_") for name in named)  # a module with an underscore is part of another


def imported(source: str) -> Iterator[str]:
    """Yield the modules that a file imports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def files(root: Path = ROOT) -> list[str]:
    """Return the files of the product whose types may differ."""
    import mypy  # noqa: PLC0415 - a tool of development

    differing = modules_that_differ(Path(str(mypy.__file__)).parent / "typeshed" / "stdlib")
    product = sorted(path for folder in PRODUCT for path in (root / folder).rglob("*.py"))
    return [
        str(path.relative_to(root))
        for path in product
        if not differing.isdisjoint(imported(path.read_text(encoding="utf-8")))
    ]


def main() -> int:
    """Run mypy; return its exit code."""
    return subprocess.run([sys.executable, "-m", "mypy", *_OPTIONS, *files()], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
