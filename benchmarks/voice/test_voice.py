"""The benchmark of callers who listen: what providers say, and how what was heard becomes figures."""

from random import Random

from benchmarks.voice.__main__ import row
from benchmarks.voice.callers import Heard, said, script
from providers.simulator import Delta, Drop, Pause

WELL = Heard(clause_s=0.8, silence_s=0.0, is_whole=True, is_told=False, is_wrong=False)


def test_a_provider_says_its_own_answer_and_goes_on_with_any() -> None:
    words = said(7, "ann")
    assert words == said(7, "ann") != said(7, "bob")
    for begun in (0, 9):
        steps = script(words, Random("goes well"), begun)
        text = "".join(step.text for step in steps if isinstance(step, Delta))
        assert " ".join(words[:begun]) + text == " ".join(words)


def test_each_thing_that_can_go_wrong_goes_wrong_in_its_share_of_the_answers() -> None:
    words, dice, n = said(7, "ann"), Random("many"), 4000
    late = dribbles = crawls = resets = 0
    for _ in range(n):
        steps = script(words, dice)
        waits = [step.seconds for step in steps if isinstance(step, Pause)]
        late += waits[0] >= 5.0
        dribbles += sum(waits[1:5]) >= 3.7 and waits[-1] < 1.0
        crawls += waits[-1] > 1.0
        resets += isinstance(steps[-1], Drop)
    for found, share in ((late, 0.04), (dribbles, 0.03), (crawls, 0.02), (resets, 0.01)):
        assert abs(found / n - share) < 0.01


def test_a_bar_is_missed_by_a_late_clause_a_silence_a_wrong_text_and_a_request_without_a_row() -> None:
    def missed(*heard: Heard, setup: str = "voice", continues: bool = True, in_ledger: int = 100) -> list[str]:
        calls = [*heard, *[WELL] * (100 - len(heard))]
        return list(row(setup, calls, continues=continues, asked=100, in_ledger=in_ledger).missed)

    late = Heard(clause_s=3.0, silence_s=0.0, is_whole=True, is_told=False, is_wrong=False)
    silent = Heard(clause_s=0.8, silence_s=4.0, is_whole=True, is_told=False, is_wrong=False)
    wrong = Heard(clause_s=0.8, silence_s=0.0, is_whole=True, is_told=False, is_wrong=True)
    unanswered = Heard(clause_s=None, silence_s=0.0, is_whole=False, is_told=True, is_wrong=False)
    assert not missed()
    assert not missed(late, late, late, setup="single")
    assert not missed(silent, silent, silent, continues=False)
    assert len(missed(late, late, late)) == len(missed(silent, silent, silent)) == 1
    assert len(missed(unanswered, unanswered, unanswered)) == 1
    assert len(missed(wrong)) == len(missed(in_ledger=99)) == 1
