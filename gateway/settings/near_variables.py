"""Variables whose names are nearly those that the gateway reads: ``GROQ_APIKEY``, ``CLAUDE_API_KEY``."""

import re
from collections.abc import Iterator, Mapping

from providers import Vendor

_OF_KEYS = re.compile(r"_?(?:API_?KEY|API_?TOKEN|AUTH_?TOKEN|ACCESS_?TOKEN|HUB_?TOKEN|SECRET_?KEY|KEY|TOKEN)$")
_SURE = re.compile(r"API_?(?:KEY|TOKEN)$")  # a name with a slip must end so: many variables end in KEY or TOKEN
_SHORTEST = 4  # of names with a slip
# Products and former names, by what is left of a variable without its end; as people name their variables.
_ALSO = {
    "ALIBABA": "DASHSCOPE_API_KEY",
    "BEDROCK": "AWS_BEARER_TOKEN_BEDROCK",
    "CHATGPT": "OPENAI_API_KEY",
    "CLAUDE": "ANTHROPIC_API_KEY",
    "GLM": "ZAI_API_KEY",
    "GOOGLEAI": "GEMINI_API_KEY",
    "GOOGLEGEMINI": "GEMINI_API_KEY",
    "GPT": "OPENAI_API_KEY",
    "GROK": "XAI_API_KEY",
    "HUGGINGFACE": "HF_TOKEN",
    "KIMI": "MOONSHOT_API_KEY",
    "QWEN": "DASHSCOPE_API_KEY",
    "ZHIPU": "ZAI_API_KEY",
    "ZHIPUAI": "ZAI_API_KEY",
}


def near_keys(environ: Mapping[str, str], catalog: Mapping[str, Vendor]) -> Iterator[str]:
    """Yield a sentence for each variable with nearly the name of a vendor's key variable, if the latter is not set."""
    titles: dict[str, str] = {}
    for vendor in catalog.values():
        if not any(environ.get(variable) for variable in vendor.key_env):
            titles |= {variable: titles.get(variable, vendor.title) for variable in vendor.key_env}
    usual = {_stem(variable): variable for variable in reversed(titles)}
    known = {variable for vendor in catalog.values() for variable in vendor.key_env}
    for name, value in environ.items():
        if not value or name in known or not _OF_KEYS.search(name.upper()):
            continue
        stem = _stem(name)
        near = [usual[stem]] if stem in usual else []
        if not near and _SURE.search(name.upper()):
            near = [usual[each] for each in usual if _is_slip(stem, each)]
        if (product := _ALSO.get(stem)) in titles:
            near.insert(0, str(product))
        if near:
            right = " or ".join(f"{each} ({titles[each]})" for each in dict.fromkeys(near))
            yield f"{name} is set, but is not read: did you mean {right}?"


def like(name: str, environ: Mapping[str, str]) -> str | None:
    """Return the variable that is set and differs from ``name`` only by cases, underscores, its end or a slip."""
    if not _OF_KEYS.search(name.upper()):
        return None
    stem, others = _stem(name), [each for each, value in environ.items() if value and _OF_KEYS.search(each.upper())]
    alike = [each for each in others if _stem(each) == stem]
    slips = [each for each in others if _is_slip(_stem(each), stem)]
    return next(iter(alike or slips), None)


def _stem(name: str) -> str:
    """Return a variable's name without its end, cases and underscores: ``groq`` of ``GROQ_APIKEY``."""
    return _OF_KEYS.sub("", name.upper()).replace("_", "")


def _is_slip(word: str, meant: str) -> bool:
    """Whether one letter is wrong, missing, too many, or two are swapped."""
    if min(len(word), len(meant)) < _SHORTEST or abs(len(word) - len(meant)) > 1 or word == meant:
        return False
    at = next((i for i, (a, b) in enumerate(zip(word, meant, strict=False)) if a != b), min(len(word), len(meant)))
    rests = {(word[at + 1 :], meant[at + 1 :]), (word[at:], meant[at + 1 :]), (word[at + 1 :], meant[at:])}
    is_swapped = word[at : at + 2] == meant[at : at + 2][::-1] and word[at + 2 :] == meant[at + 2 :]
    return is_swapped or any(ours == theirs for ours, theirs in rests)
