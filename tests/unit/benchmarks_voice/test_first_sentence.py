"""The benchmark of win_on sentence: its texts say where they can be spoken, and silence is what it helps against."""

from random import Random

from benchmarks.voice.__main__ import FIRST_S, Figures, Text, ask, drawn, rows, text
from gateway.core.attempts import WinOn


def test_a_text_can_be_spoken_once_its_first_clause_has_ended() -> None:
    dice = Random(1)
    seen: list[Text] = [text(dice) for _ in range(300)]
    firsts = {each.whole[: each.needed_chars] for each in seen}
    assert {"Yes. ", "Dr. Smith is free at 3.30 p.m. on Monday. ", "Here is what you need:\n"} <= firsts
    assert any(first.startswith("If you look") and len(first.split()) == 13 for first in firsts)


def test_nobody_who_falls_silent_wins_unless_a_clause_was_there_before() -> None:
    dice = Random(2)
    by_token, by_sentence = Figures(winners=[], spoken_s=[]), Figures(winners=[], spoken_s=[])
    for _ in range(40):
        draws = {name: drawn(dice, name, 1.0 if name == "quick" else 0.0) for name in FIRST_S}
        ask(draws, WinOn.ANY, by_token)
        ask(draws, WinOn.SENTENCE, by_sentence)
    assert by_sentence.winners.count("steady") > by_token.winners.count("steady")
    assert all(one <= other + 1e-6 for one, other in zip(by_sentence.spoken_s, by_token.spoken_s, strict=True))
    assert by_sentence.heard >= 40
    assert by_sentence.early == 0


def test_the_table_compares_both_with_the_same_draws() -> None:
    table = [row.strip("|").split("|") for row in rows(40, 7, [0.0, 0.5])][2:]
    assert [row[1].strip() for row in table] == ["win_on: any", "win_on: sentence"] * 2
    assert float(table[3][3]) < float(table[2][3])  # seconds to the first clause, on average
