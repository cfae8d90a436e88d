"""The newest conversation of each kind, kept in the repository: the page is made of them, and a run replaces its own.

A line of JSON is a program's way to talk at a model, and what came of each setup.
"""

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from tests.clients.matrix import Talked, in_order, shorter

FILE = Path(__file__).with_name("conversations.jsonl")


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """When a conversation was had, and what was wrong in it: why it ended early, or what stand-ins refused."""

    day: dt.date
    turn: int
    refused: bool
    why: str
    refusals: tuple[str, ...] = ()


class Row(msgspec.Struct, frozen=True):
    """A program's way to talk at one model, by setup: when it worked, or what was wrong; the newest's ``version``."""

    client: str
    case: str
    place: str
    version: str
    cells: Mapping[str, dt.date | Told]


def read(file: Path = FILE) -> list[Talked]:
    """Return the conversations that are kept."""
    rows = map(msgspec.json.Decoder(Row).decode, file.read_bytes().splitlines())
    return [talk for row in rows for talk in _talks(row)]


def keep(talks: Iterable[Talked], file: Path = FILE) -> None:
    """Keep these in place of earlier ones of their kind; all others stay, each with its day."""
    newest = {(talk.row, talk.target): talk for talk in (*read(file), *talks)}
    rows: dict[tuple[str, str, str], list[Talked]] = {}
    for talk in in_order(newest.values()):
        rows.setdefault((*talk.row, talk.place), []).append(talk)
    file.write_bytes(b"".join(msgspec.json.encode(_row(*each)) + b"\n" for each in rows.items()))


def _row(names: tuple[str, str, str], talks: list[Talked]) -> Row:
    newest = max(talks, key=lambda talk: talk.ended)
    return Row(*names, newest.version, {talk.setup: _cell(talk) for talk in talks})


def _cell(talk: Talked) -> dt.date | Told:
    if not talk.why and not talk.refusals:
        return talk.day
    turn = talk.turn if talk.why else 0
    return Told(talk.day, turn, talk.refused, shorter(talk.why), tuple(map(shorter, talk.refusals)))


def _talks(row: Row) -> Iterator[Talked]:
    for setup, cell in row.cells.items():
        told = cell if isinstance(cell, Told) else Told(cell, 0, refused=False, why="")
        at = dt.datetime.combine(told.day, dt.time(), dt.UTC).timestamp()
        yield Talked(
            client=row.client,
            version=row.version,
            api="",
            case=row.case,
            target=f"{row.place}|{setup}",
            turn=told.turn,
            refused=told.refused,
            why=told.why,
            began=at,
            ended=at,
            refusals=told.refusals,
        )
