"""What a listener hears of an answer: when speech can begin, and how long it then has to pause."""

from collections.abc import Callable, Iterable

from gateway.racing.answer_text import AnswerText
from gateway.racing.speakable import Speakable

SPOKEN_CHARS_S = 15.0  # of speech: some 160 words of English a minute


class Speech(AnswerText):
    """The text of an answer as speech: nothing of it is kept beyond the first clause.

    One block of an answer goes on where another ends: a listener hears no seam.
    """

    def __init__(self, texts: Callable[[bytes], Iterable[tuple[int, str]]], enough_words: int) -> None:
        """``texts`` as for AnswerText; ``enough_words`` as for Speakable."""
        super().__init__(texts)
        self.began_at: float | None = None  # when there was a first clause
        self.has_text = False
        self.pause_s = 0.0  # the longest time in which a listener had nothing more to hear
        self._speakable = Speakable(enough_words)
        self._new_chars = 0
        self._heard_until = 0.0

    def add(self, texts: Iterable[str]) -> None:
        """Take text of the answer."""
        for text in texts:
            self._new_chars += len(text)
            self.has_text = self.has_text or bool(text)
            self._speakable.add(text)

    def came(self, now: float, *, is_over: bool, is_spoken: bool) -> None:
        """Note that what was taken since the last time came ``now``.

        ``is_over``: the answer is complete, so what it has is a clause; ``is_spoken`` False: it is no text.
        """
        if self.began_at is None:
            if not is_spoken or self._speakable.found or (is_over and self.has_text):
                self.began_at = self._heard_until = now
            else:
                return
        if self._new_chars:
            self.pause_s = max(self.pause_s, now - self._heard_until)
            self._heard_until = max(now, self._heard_until) + self._new_chars / SPOKEN_CHARS_S
            self._new_chars = 0

    def _take(self, place: int, text: str) -> None:
        del place
        self.add((text,))
