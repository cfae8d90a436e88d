"""The benchmark of failing providers over real sockets: one gateway in its own process, and what a client gets."""

from pathlib import Path

from benchmarks.failover.cells import TEXT, all_rows


async def test_a_cut_answer_is_finished_with_takeover_and_told_without(tmp_path: Path) -> None:
    whole, part = await all_rows(["cut at word 40"], ["race of two, `takeover`", "`single`"], tmp_path)
    assert [outcome.text for outcome in whole.outcomes] == [TEXT]
    assert whole.verdict.word == "pass"
    assert part.verdict.word == "safe"
    [outcome] = part.outcomes
    assert outcome.error == "disconnected"
    assert outcome.text.split() == TEXT.split()[:40]
