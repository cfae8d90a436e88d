"""Texts of the kinds that answers are, drawn at random: where one breaks, its kind decides what the seam meets."""

from collections.abc import Callable, Mapping
from random import Random

WORDS = (
    *("The", "lazy", "dog's", "owner,", "42", "of", "them:", "über-große", "猫", "—", "said", "(twice)", "that"),
    *("“it”", "costs", "$3.14\nand\n\nno", "more;", "OK?", "Yes.", "a", "I"),
)
NO_SPACES = (
    "今日は",
    "天気が",
    "いいから",
    "散歩",
    "しましょう。",
    "我们",
    "正在",
    "讨论",
    "这个问题。",
    "สวัสดี",
    "ครับ",
    "ผมชื่อ",
)
EMOJI = ("👩‍👩‍👧‍👦", "👍🏽", "🇩🇪", "🏳️‍🌈", "é", "ok", "😀", "\u200d", "🧑🏿‍🚀", "fine", "✈️", "a")
LINES = (
    *("def f(x):", "    return x", "    return x", "}", "    }", "for i in range(10):", "    y += 1", "", "# done"),
    *("if (a == b) {", "\tcall(a, b);", 'print("a b")', "x = x", "else:"),
)
AGAIN = ("had", "had", "ha", "ha", "!!", "0000", "no", "no,", "-", "-", "very")


def prose(dice: Random, number: int) -> str:
    """Return words of which none follows itself."""
    words = [dice.choice(WORDS)]
    while len(words) < number:
        words.append(dice.choice([word for word in WORDS if word != words[-1]]))
    return " ".join(words)


def no_spaces(dice: Random, number: int) -> str:
    """Return Japanese, Chinese and Thai, without a space."""
    return "".join(dice.choices(NO_SPACES, k=number))


def emoji(dice: Random, number: int) -> str:
    """Return characters of several code points, also side by side."""
    return "".join(dice.choice(("", " ", "")) + each for each in dice.choices(EMOJI, k=number)).lstrip()


def code(dice: Random, number: int) -> str:
    """Return lines of code, some of them twice."""
    return "\n".join(dice.choices(LINES, k=max(2, number // 3))).lstrip()


def json(dice: Random, number: int) -> str:
    """Return JSON as a text, with the same pieces again and again."""
    rows = [f'{{"id": {dice.randint(1, 3)}, "of": [{{}}, [], "a\\n"], "ok": true}}' for _ in range(max(1, number // 8))]
    return f"[{', '.join(rows)}]"


def again(dice: Random, number: int) -> str:
    """Return words that follow themselves."""
    return " ".join(dice.choices(AGAIN, k=number))


KINDS: Mapping[str, Callable[[Random, int], str]] = {
    "prose": prose,
    "no spaces": no_spaces,
    "emoji": emoji,
    "code": code,
    "JSON": json,
    "repeated words": again,
    "thinks first": prose,
}
