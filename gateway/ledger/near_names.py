"""Advice on a missing table, view or column: the nearest name, added to the database's error."""

import difflib
import re
from collections.abc import Collection, Mapping

# In both databases: ``no such column: ttft``, ``relation "call" does not exist``, ``column calls.ttft does not exist``.
_MISSING = re.compile(
    r"no such (?P<what>table|column): (?P<name>[\w.$]+)"
    r'|(?P<thing>relation|column) "?(?P<named>[\w.$]+)"? does not exist'
)
_OF_SUMS = re.compile(r"rollup_.*|buckets|holeshot_version|(calls|attempts)_(first|default|\d+)")  # rarely looked for
LISTED = """
select table_name as name, column_name as column, table_name in (select table_name from information_schema.views)
from information_schema.columns where table_schema = current_schema() order by table_name, ordinal_position
"""
LISTED_ON_SQLITE = """
select made.name, columns.name, made.type = 'view'
from sqlite_master as made join pragma_table_info(made.name) as columns
where made.type in ('table', 'view') order by made.name, columns.cid
"""


def is_of_a_name(said: str) -> bool:
    """Whether a database's error says that there is no such table or column."""
    return _MISSING.match(said) is not None


def advice(said: str, sql: str, columns: Mapping[str, Collection[str]], views: Collection[str]) -> str:
    """Return a database's error with the nearest name, or with all names.

    ``columns``: by table and view.
    """
    missing = _MISSING.match(said)
    if missing is None:
        return said
    name = (missing["name"] or missing["named"]).rpartition(".")[2]
    if "column" not in {missing["what"], missing["thing"]}:
        near = difflib.get_close_matches(name, columns, n=1)
        meant = f"did you mean {near[0]!r}? The" if near else "the"
        names = sorted(each for each in columns if not _OF_SUMS.fullmatch(each))
        listed, tables = ([each for each in names if (each in views) is are_views] for are_views in (True, False))
        return f"{said}; {meant} views are {', '.join(listed)}; tables: {', '.join(tables)}"
    mentioned = [each for each in columns if re.search(rf"\b{re.escape(each)}\b", sql)]
    names = list(dict.fromkeys(column for each in mentioned for column in columns[each]))
    near = difflib.get_close_matches(name, names, n=2) or [each for each in names if name in each][:3]
    if near:
        return f"{said}; did you mean {' or '.join(map(repr, near))}?"
    has = "; ".join(f"{each} has {', '.join(columns[each])}" for each in mentioned)
    return f"{said}; {has}" if has else said
