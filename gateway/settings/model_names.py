"""Parses providers' names for models into the model, the quantization of its weights, and the way it is served.

Two names mean the same model only if all their parts agree: family, version, size, kind, date. Only the spelling is
normalised (``Llama-3.3-70B``, ``llama-v3p3-70b``, ``llama-3_3-70b``), and parts that do not belong to the model are
removed: the path, its owner's name, the format of the weights, the vendor's word for its way of serving. A name with
fewer parts ("mistral-small") is another name: a wrong match would answer with another model.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

import msgspec

ModelKind = Literal["chat", "base", "embedding", "rerank", "audio", "image", "video", "moderation", "ocr"]


class ModelName(msgspec.Struct, frozen=True):
    """A parsed name."""

    model: str  # the same text for all names of one model: "llama-3.3-70b-instruct"
    kind: ModelKind
    quantization: str | None = None  # if the name has a quantization: "fp8", "q4_k_m"
    serving: str | None = None  # the vendor's word for its way of serving: "turbo"
    certain: bool = True  # False: the name is too short to identify the model
    moving: bool = False  # the name's meaning changes: "auto", "latest"


# The publishers of each family, by the prefixes that vendors use. With another prefix a name is another model.
_OWNERS: Mapping[str, frozenset[str]] = {
    family: frozenset(owners.split())
    for family, owners in {
        "claude": "anthropic",
        "codellama": "meta meta-llama codellama togethercomputer",
        "codestral": "mistral mistralai",
        "command": "cohere coherelabs cohereforai",
        "deepseek": "deepseek deepseek-ai",
        "devstral": "mistral mistralai",
        "ernie": "baidu",
        "gemini": "google",
        "gemma": "google",
        "glm": "zai-org zai z-ai thudm zhipuai",
        "gpt": "openai",
        "granite": "ibm ibm-granite",
        "grok": "xai x-ai",
        "hermes": "nousresearch",
        "inkling": "thinkingmachines",
        "kimi": "moonshotai moonshot",
        "llama": "meta meta-llama facebook",
        "magistral": "mistral mistralai",
        "mimo": "xiaomi xiaomimimo",
        "minimax": "minimax minimaxai",
        "ministral": "mistral mistralai",
        "mistral": "mistral mistralai",
        "mixtral": "mistral mistralai",
        "muse": "meta meta-models",
        "nemotron": "nvidia",
        "olmo": "allenai",
        "phi": "microsoft",
        "pixtral": "mistral mistralai",
        "qwen": "qwen alibaba",
        "qwq": "qwen alibaba",
        "sonar": "perplexity",
        "step": "stepfun stepfun-ai",
        "voxtral": "mistral mistralai",
        "wizardlm": "microsoft",
    }.items()
}
_QUANTIZERS = frozenset(  # publishers of others' models in other formats, with the models' names
    "redhatai neuralmagic unsloth bartowski lmstudio-community ggml-org thebloke mlx-community nvidia amd".split()  # noqa: SIM905 - a list of names reads better as one line
)
_LLAMA_4_SIZES: Mapping[str, frozenset[str]] = {
    "maverick": frozenset({"17b", "128e"}),
    "scout": frozenset({"17b", "16e"}),
}
_BRANDS = {  # an owner's name that is repeated before the family
    ("meta", "llama"), ("nvidia", "nemotron"), ("nvidia", "llama"), ("zai", "glm"), ("qwen", "qwq"),
    ("qwen", "qwen"), ("google", "gemma"), ("openai", "gpt"), ("mistralai", "mistral"), ("minimaxai", "minimax"),
}  # fmt: skip

# In these families a plain name means the base model, or at some vendors the trained one; in others the trained one.
_PLAIN_IS_BASE = re.compile(r"(codellama|gemma|llama|mixtral)(-|$)|mistral-7b|qwen-[12](\.|-)")
_NEVER_BASE = ("llama-3.3-",)  # releases without a base model
_JOINED = re.compile(r"^(claude|codellama|ernie|gemini|gemma|glm|gpt|grok|hermes|llama|phi|qwen)(?=\d)")
_NUMBERED_WITH_V = re.compile(r"^(gemma|hermes|llama|qwen)-v(?=\d)")

_PATHS = (
    re.compile(r"^accounts/fireworks/(?:models|routers)/"),
    re.compile(r"^models/"),
    re.compile(r"^publishers/[^/]+/models/"),
    re.compile(r"^@(?:cf|hf)/"),
    re.compile(r"^/.*/"),  # a folder of the server
)
_QUANTIZATIONS = tuple(
    (re.compile(rf"(?<![a-z0-9])({pattern})(?![a-z0-9])"), label)
    for pattern, label in (
        ("i?q[2-8][_-](?:k|0|1|nl|xs|xxs)(?:[_-](?:s|m|l|xl))?", None),  # llama.cpp's
        ("(?:nv|mx)?fp4|(?:mx)?fp8|fp16|bf16|fp32|int4|int8|w4a16|w8a8|w8a16|awq|gptq", None),
        ("4-?bit", "int4"),
        ("8-?bit", "int8"),
    )
)
_FORMATS = re.compile(r"[-_.](?:gguf|ggml|mlx|quantized|dynamic|hf|maas)(?![a-z0-9])")

_DATE = re.compile(r"(?<!\d)(20\d\d)-(\d\d)-(\d\d)(?!\d)")
_POINT_P = re.compile(r"(?<=\d)p(?=\d)")
_SPLIT_VERSION = re.compile(r"(?<![\d.a-z])(v?\d{1,2})-(\d{1,2})(?=-|$)")
_SIZE = re.compile(r"^(?:\d+x)?\d+(?:\.\d+)?[bt]$")
# If the name has a size, the open weights are served, and these words only describe the way of serving.
_SERVED = frozenset({"turbo", "versatile", "instant", "fast", "cloud", "basic", "highspeed"})
_SERVED_ANYWAY = frozenset({"basic", "versatile"})
_SERVED_TO_CHAT = frozenset({"instant", "versatile"})  # never used for base models
_MOVING = frozenset({"auto", "custom", "default", "free", "latest", "router"})  # names with changing meanings
_VARIANT_WORDS = frozenset({"base", "chat", "instruct", "it", "python", "text", "thinking"})

_KINDS: tuple[tuple[ModelKind, re.Pattern[str]], ...] = (
    ("rerank", re.compile(r"rerank|rank-v|(^|-)ranker")),
    ("embedding", re.compile(r"embed|^(bge|e5|gte|uae|voyage|jina)-|minilm|mpnet|-retrieval|similarity")),
    ("moderation", re.compile(r"guard|moderation|safeguard|shield|safety|toxic")),
    ("image", re.compile(
        r"flux|stable-diffusion|sdxl|^sd\d|dall-e|imagen|gpt-image|image-generation|-image(-|$)|ideogram|recraft|seedream"
        r"|kontext|playground-v|hidream|qwen-image"
    )),
    ("video", re.compile(r"^veo|^sora|kling|hailuo|^wan-?\d|seedance|t2v|i2v|video-0\d")),
    ("audio", re.compile(
        r"whisper|tts|transcri|speech|^audio|-audio|voxtral-mini|orpheus|kokoro|parakeet|canary|sonic|realtime|lyria|music"
        r"|playai|live-translate|-asr"
    )),
    ("ocr", re.compile(r"ocr")),
)  # fmt: skip


def parsed_name(name: str, *, trained: bool = False, listed_kind: ModelKind | None = None) -> ModelName:
    """Parse ``name``. ``trained``: its provider sells no base models. ``listed_kind``: the kind in its list."""
    owner, words = _split_owner(name.strip().lower())
    words, quantization = _without_quantization(words)
    tokens = _without_brand(_respelled(words).split("-"))
    family = _family(tokens)
    tokens, serving = _without_serving(tokens)
    tokens = _normalised(family, tokens, trained=trained or serving in _SERVED_TO_CHAT)
    kind = listed_kind or _kind(tokens)
    if kind == "chat" and "base" in tokens:
        kind = "base"
    model = "-".join(tokens)
    if owner is not None and not _is_owner(owner, family, quantized=quantization is not None):
        model = f"{owner}/{model}"
    moving = not _MOVING.isdisjoint(tokens)
    return ModelName(model, kind, quantization, serving, certain=_is_certain(tokens) and not moving, moving=moving)


def owners_of(name: str) -> frozenset[str]:
    """Return vendors' names for the publisher of the model's family; empty if the family is not known."""
    family = _family(_without_brand(_respelled(name.strip().lower()).split("-")))
    return frozenset() if family is None else _OWNERS.get(family, frozenset())


def _split_owner(name: str) -> tuple[str | None, str]:
    """Return the owner, if given, and the name without the path."""
    if name.startswith("ft:"):
        return "fine-tuned", name
    for path in _PATHS:
        name = path.sub("", name)
    owner, slash, rest = name.partition("/")
    return (owner, rest) if slash and rest else (None, name)


def _without_quantization(words: str) -> tuple[str, str | None]:
    """Return a name without the format of its weights, and the format."""
    words = _FORMATS.sub("", words)
    found = None
    for pattern, label in _QUANTIZATIONS:
        if match := pattern.search(words):
            found = found or label or match[1].replace("-", "_")
            words = words[: match.start()].rstrip("-_.:@ ") + words[match.end() :]
    return words, found


def _respelled(words: str) -> str:
    """Return a name in one spelling: dashes between words, points in versions."""
    words = re.sub(r"[_:@/ +]+", "-", words)
    words = _DATE.sub(r"\1\2\3", words)
    words = _POINT_P.sub(".", words)
    words = re.sub(r"^code-llama", "codellama", words)
    words = _JOINED.sub(r"\1-", words)
    words = _NUMBERED_WITH_V.sub(r"\1-", words)
    words = re.sub(r"-{2,}", "-", words).strip("-.")
    while (joined := _SPLIT_VERSION.sub(r"\1.\2", words)) != words:
        words = joined
    return words


def _without_brand(tokens: list[str]) -> list[str]:
    return tokens[1:] if len(tokens) > 1 and (tokens[0], tokens[1]) in _BRANDS else tokens


def _family(tokens: list[str]) -> str | None:
    """Return the family with which a name begins; but a Nemotron is NVIDIA's, whatever it is based on."""
    if "nemotron" in tokens:
        return "nemotron"
    if re.fullmatch(r"o\d", tokens[0]) or tokens[0] == "chatgpt":
        return "gpt"
    return tokens[0] if tokens[0] in _OWNERS else None


def _without_serving(tokens: list[str]) -> tuple[list[str], str | None]:
    sized = any(map(_SIZE.fullmatch, tokens))
    words = _SERVED if sized else _SERVED_ANYWAY
    served = [word for word in tokens[1:] if word in words]
    kept = [tokens[0], *(word for word in tokens[1:] if word not in words)]
    return kept, "-".join(served) or None


def _normalised(family: str | None, tokens: list[str], *, trained: bool) -> list[str]:
    """Return the tokens of a name, normalised for its family."""
    match family:
        case "llama":
            tokens = ["instruct" if word == "chat" else word for word in tokens]
            for name, sizes in _LLAMA_4_SIZES.items():  # each of these has one size, which not all names contain
                if name in tokens:
                    tokens = [word for word in tokens if word not in sizes]
        case "gemma":
            tokens = ["instruct" if word == "it" else word for word in tokens]
        case "mixtral":
            tokens = [word for word in tokens if word != "v0.1"]  # the only version
        case "ernie":
            tokens = [word for word in tokens if word not in {"pt", "paddle"}]  # formats of the weights
        case "claude":
            tokens = _as_anthropic_writes(tokens)
        case _:
            pass
    if _is_ambiguous(tokens) and (trained or "-".join(tokens).startswith(_NEVER_BASE)):
        tokens = [*tokens, "instruct"]
    if "instruct" in tokens and _PLAIN_IS_BASE.match("-".join(tokens)):  # "vision-instruct", "instruct-vision"
        tokens = [*(word for word in tokens if word != "instruct"), "instruct"]
    return tokens


def _is_ambiguous(tokens: list[str]) -> bool:
    """Whether a name may mean the base model as well as the trained one."""
    plain = not _VARIANT_WORDS & set(tokens)
    return plain and _PLAIN_IS_BASE.match("-".join(tokens)) is not None and _kind(tokens) == "chat"


def _as_anthropic_writes(tokens: list[str]) -> list[str]:
    """Return claude-TIER-VERSION for claude-VERSION-TIER as well, and from version 4 on without the date.

    Since version 4 each version has one snapshot.
    """
    rest = tokens[1:]
    if len(rest) > 1 and re.fullmatch(r"\d+(\.\d+)?", rest[0]) and rest[1].isalpha():
        rest = [rest[1], rest[0], *rest[2:]]
    match rest:
        case [tier, version, date] if re.fullmatch(r"[4-9](\.\d+)?", version) and re.fullmatch(r"20\d{6}", date):
            rest = [tier, version]
        case _:
            pass
    return [tokens[0], *rest]


def _kind(tokens: list[str]) -> ModelKind:
    words = "-".join(tokens)
    return next((kind for kind, pattern in _KINDS if pattern.search(words)), "chat")


def _is_owner(owner: str, family: str | None, *, quantized: bool) -> bool:
    if family is None:
        return False
    return owner in _OWNERS[family] or (quantized and owner in _QUANTIZERS)


def _is_certain(tokens: list[str]) -> bool:
    """Whether a name identifies the model: by version or size, and as trained or not."""
    numbered = any(any(map(str.isdigit, word)) for word in tokens)
    return numbered and not _is_ambiguous(tokens)


@lru_cache(maxsize=1024)
def model_identity(name: str) -> str:
    """Return what all names of one model share: without the owner's name, which some vendors leave out."""
    name = name.rpartition("/")[2]
    parsed = parsed_name(name)
    return parsed.model if parsed.certain and not parsed.moving else name.lower()
