"""Shows the house: files, lines and rooms of the product, files with one importer, and import circles.

    python -m tools.house [--list] [--doors]

``--doors``: of each room the names of its door, and how many imports name a file behind it, of the product's other
rooms, of tests elsewhere, of its own tests, and of those inside it.
An import counts where it stands: at the top, in a function, or for type hints alone. A name that a room's front door
(its ``__init__.pyi``) lists is resolved to the file that defines it; a door is no importer. Circles and loose files are
defects, which ``tests/unit/test_house.py`` finds. Sizes are told, and no goal: a file has the size of its subject.
"""

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median

from msgspec import Struct

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("gateway", "providers")
# Everything but __init__ is in a room.
LIMITS = {"files in import circles": 0, "loose files of gateway": 1, "loose files of providers": 1}


class House(Struct, frozen=True):
    """The modules of the product: their lines, and which modules each imports."""

    lines: Mapping[str, int]
    imports: Mapping[str, frozenset[str]]

    @property
    def one_importer(self) -> list[str]:
        """The modules that exactly one other module imports."""
        importers = defaultdict(set)
        for module, imported in self.imports.items():
            for name in imported:
                importers[name].add(module)
        return sorted(name for name in self.lines if len(importers[name]) == 1)

    @property
    def circles(self) -> list[list[str]]:
        """The groups of modules that import each other, directly or through others."""
        reached = {module: self._reached(module) for module in self.lines}
        groups = {
            frozenset(other for other in reached[module] if module in reached[other]) | {module}
            for module in self.lines
            if module in reached[module]
        }
        return sorted(sorted(group) for group in groups)

    def figures(self) -> dict[str, float]:
        """Return what ``LIMITS`` bound, and the sizes."""
        return {
            "files": len(self.lines),
            "lines": sum(self.lines.values()),
            "median lines": median(self.lines.values()),
            "files with one importer": len(self.one_importer),
            "files in import circles": sum(map(len, self.circles)),
            "lines of the longest file": max(self.lines.values()),
            "racing": self._in("gateway.racing"),
            "steering": self._in("gateway.steering"),
            "api and admin": self._in("gateway.api") + self._in("gateway.admin"),
            "ledger": self._in("gateway.ledger"),
            "settings": self._in("gateway.settings"),
            "providers": self._in("providers"),
            **{f"loose files of {name}": sum(map(Path.is_file, (ROOT / name).glob("*.py"))) for name in PACKAGES},
        }

    def _in(self, room: str) -> int:
        return sum(module == room or module.startswith(f"{room}.") for module in self.lines)

    def _reached(self, start: str) -> set[str]:
        reached: set[str] = set()
        waiting = [start]
        while waiting:
            for name in self.imports.get(waiting.pop(), frozenset()):
                if name not in reached:
                    reached.add(name)
                    waiting.append(name)
        return reached


def measure(root: Path = ROOT) -> House:
    """Read every module of the product below ``root``."""
    paths = {_name(path.relative_to(root)): path for package in PACKAGES for path in (root / package).rglob("*.py")}
    trees = {module: ast.parse(path.read_text()) for module, path in paths.items()}
    doors = doors_of(root)
    imports = {
        module: frozenset(
            found for name in imported(tree) if (found := _resolved(name, paths, doors)) is not None and found != module
        )
        for module, tree in trees.items()
        if not doors.get(module)
    }
    return House({module: len(path.read_text().splitlines()) for module, path in paths.items()}, imports)


def _name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the module and the name of each ``from module import name``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                yield node.module, alias.name


def modules_of(tree: ast.Module) -> set[str]:
    """Return the modules that are imported, in whichever way; of ``from package import name`` also ``package.name``."""
    found = {f"{module}.{name}" for module, name in imported(tree)}
    return found | {
        name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in (each.name for each in node.names)
    }


def doors_of(root: Path = ROOT) -> dict[str, dict[str, str]]:
    """Return for each room with a front door the names it lists, each with the module that defines it."""
    stubs = {
        _name(path.relative_to(root)): path for package in PACKAGES for path in (root / package).rglob("__init__.pyi")
    }
    return {
        room: {
            alias.name: f"{room}.{node.module or alias.name}"
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for room, path in stubs.items()
    }


def deep_imports(root: Path = ROOT) -> dict[str, Counter[str]]:
    """Count for each room the imports that name a file behind its door, by who imports: ``rooms``, ``tests``, …."""
    doors = doors_of(root)
    rooms = [
        f"{package}.{path.parent.name}"
        for package in PACKAGES
        for path in sorted((root / package).glob("*/__init__.py"))
    ]
    counts: dict[str, Counter[str]] = {room: Counter() for room in rooms}
    for top in (*PACKAGES, "holeshot", "tests"):
        for path in sorted((root / top).rglob("*.py")):
            at = path.relative_to(root)
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.ImportFrom) or node.module is None or node.module in doors:
                    continue
                room = ".".join(node.module.split(".")[:2])
                if room in counts and node.module != room and room != ".".join(at.parts[:2]):
                    counts[room][_who(at, room)] += 1
    return counts


def _who(path: Path, room: str) -> str:
    if path.parts[0] != "tests":
        return "rooms"
    own = Path("tests/unit", *room.removeprefix("gateway.").split("."))
    if own not in path.parents:
        return "tests"
    return "inside" if "inside" in path.parts else "own tests"


def _resolved(
    imported: tuple[str, str], paths: Mapping[str, Path], doors: Mapping[str, Mapping[str, str]]
) -> str | None:
    """Return the module that ``from module import name`` reads."""
    module, name = imported
    if f"{module}.{name}" in paths:
        return f"{module}.{name}"
    behind = doors.get(module, {}).get(name)
    if behind is not None:
        return behind
    return module if module in paths else None


def main() -> None:
    house = measure()
    for name, figure in house.figures().items():
        print(f"{name:28} {figure:>9,.0f}  {f'at most {LIMITS[name]}' if name in LIMITS else ''}".rstrip())
    for circle in house.circles:
        print("circle:", " ".join(circle))
    if "--list" in sys.argv:
        print("one importer:", *house.one_importer, sep="\n  ")
    if "--doors" in sys.argv:
        who, doors = ("rooms", "tests", "own tests", "inside"), doors_of()
        print(f"{'deep imports by':28}{'door':>10}", *(f"{each:>10}" for each in who), sep="")
        for room, deep in deep_imports().items():
            print(f"{room:28}{len(doors.get(room, ())):>10}", *(f"{deep[each]:>10}" for each in who), sep="")


if __name__ == "__main__":
    main()
