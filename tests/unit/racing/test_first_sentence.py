"""With ``win_on: sentence`` the first clause that can be spoken wins, and silence after the first words does not."""

from random import Random

from gateway.core.attempts import WinOn
from tests.unit.racing.inside.spoken_clauses import FIRST_S, Figures, Text, ask, drawn, text


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
