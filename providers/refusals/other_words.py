"""Fields that a refusal names in words of no rule: "Parametro sconosciuto: seed"."""

import re
from collections.abc import Iterator, Sequence

from providers.refusals.refused_fields import (
    CONDITION,
    LITERALS,
    MOST_FIELDS,
    NO_VALUE,
    NOUN,
    SENTENCES,
    RefusedField,
    path_of,
)

# A sentence names fields, says that something is not taken, and says nothing of the values that are.
# ``exchange/taught.py`` ignores names that are no field of the request, or no field that may be left out.
_REFUSES = re.compile(
    r"\bnot (?:be |currently |yet |an? )?(?:support|allow|permit|accept|recogni[sz]e)"
    r"|\bnot (?:be |currently |yet )?(?:available|specified|implemented)\b"
    r"|n['\u2019]t (?:be )?(?:support|allow|accept|recogni[sz]e|permit)"
    rf"|\b(?:not an? valid|an invalid|invalid) (?:request )?{NOUN}"
    r"|\b(?:unsupported|unknown|unrecogni[sz]ed|unexpected|unavailable|disabled|removed|deprecated|forbidden|disallowed)\b"
    r"|\b(?:cannot|must not) (?:be )?(?:use|specify|specified|set|sent|present)|\bextra (?:fields?|inputs?)"
    r"|\bincompatible with (?:this|the) |\bis not possible (?:for|with)\b|^(?:please )?(?:omit|remove|leave out)\b"
    r"|\badditional (?:property|properties)\b|\bproperty not allowed"
    r"|\bonly (?:supported|available|allowed) (?:when|if|with|in)\b"
    r"|不支持|未知参数",
    re.IGNORECASE,
)
_OF_VALUES = re.compile(
    r"\bmust\b(?! not be (?:set|used|sent|specified|present))"
    r"|\b(?:should|expected|between|range|at (?:least|most)|greater|less|too (?:long|large|short|small|many|few)"
    r"|missing|required|type|format|integer|float|number|string|boolean|array|object|null|both|value|values)\b",
    re.IGNORECASE,
)
# In other languages: that something is too long, too large or too many, or that its value or kind is wrong.
_OF_AMOUNTS_AND_KINDS = re.compile(
    r"\btrop |\btroppo|\bzu (?:lang|gro|viel)|\bdemasiad|\bmuito |\bmuy "
    r"|\bte (?:lang|groot|veel)|\bför |\bfor (?:lang|stor)|\bexced|\bdépass|\büberschr|\bhöchstens|\bmax"
    r"|слишком|превыш|过[长大多]|太[长大多]|超[长过出]|長すぎ|大きすぎ|多すぎ|超え|너무|초과"
    r"|\b(?:wert|valeur|valore?|waarde|zeichenkette|ganzzahl|zahl|cha[iî]ne|nombre|entier|obj(?:ek|e)t|bool[eé]en"
    r"|cadena|n[uú]mero|entero|objeto|texto|inteiro|stringa|intero|oggetto|reeks|getal)\b|строк|числ|объект|значени"
    r"|值|字符串|整数|数字|对象|布尔|値|文字列|オブジェクト|값|문자열|정수|숫자|객체",
    re.IGNORECASE,
)
# A word of another language, or a letter that English does not have.
_FOREIGN = re.compile(
    r"[^\W\x00-\x7f]"
    r"|\b(?:muss|darf|vom typ|doit|doivent|de type|debe|deben|deve|devem|devono|de tipo|moet|moeten|skal|musi|harus)\b",
    re.IGNORECASE,
)
_PLAIN = "temperature|seed|logprobs|verbosity|metadata|prediction|modalities|truncation"  # words for nothing else
_NAMED_HERE = re.compile(
    rf"(?i:{NO_VALUE})(?:[`'\"\u201c\u201e\u2018\xab\u300c\u300e] ?(?:\$\.|body\.)?(?P<quoted>[A-Za-z_][\w.]{{0,59}})"
    r" ?[`'\"\u201c\u201d\u2019\xbb\u300d\u300f]"
    rf"|\b(?i:{NOUN}):? (?!(?:is|are|was|not|in|of|for|to|that|and|or|named|called)\b)"
    r"(?P<after>[A-Za-z_][\w.]{0,59})"
    r"|(?:#?/|\$\.)(?P<pointed>\w{1,60}(?:/\d{1,4}/[\w/]{1,150})?)\b"
    r"|(?<![\w./-])(?![\w.]{61})(?P<joined>[a-z]+(?:_[a-z0-9]+)+(?:\.\w+)*|[a-z]+(?:[A-Z][a-z0-9]*)+)(?![A-Za-z0-9_])"
    # Metadata: the keys and values are the client's.
    rf"|(?<![\w./-])(?P<plain>{_PLAIN})\b(?! (?:key|field|value|name|label|entry)))"
)
# Names that may be words of a sentence, such as ``user``, beside a noun of another language.
_OF_SCRIPTS = r"параметр\w*|поле|参数|參數|字段|欄位|パラメータ|フィールド|매개변수|파라미터|필드"
_BY_A_NOUN = re.compile(
    rf"(?i:\bparam(?!eters?\b)\w*|\bpar[áâ]m\w*|\bcampos?\b|\bchamps?\b|\bpole\b|{_OF_SCRIPTS})"
    r"[^:;.!?\n]{0,40}[:\uff1a] ?['\"]?(?P<behind>[a-z_][a-z0-9_]{0,59})['\"]?\W*$"
    rf"|(?i:{_OF_SCRIPTS}) ?(?P<after>[a-z_][a-z0-9_]{{0,59}})|(?P<before>[a-z_][a-z0-9_]{{0,59}}) ?(?i:{_OF_SCRIPTS})"
)
# The path of a member of a list: ``tools[0].strict``, ``/input/1/phase``.
_PATH = re.compile(r"(?<![\w.])/?[A-Za-z_]\w{0,60}(?:\[\d{1,4}\]|[./]\d{1,4}(?=[./]))[\w.\[\]/]{1,150}\w")
# Codes of errors, values and removed quotes (``quotes.py``), which are no fields: "unknown_parameter: verbosity".
_OF_ERRORS = re.compile(
    rf"^(?:bad|error|invalid|not|request|un[a-z]+)_|_(?:error|failed|id)$|^{LITERALS}$|^x+$", re.IGNORECASE
)
_LISTED = re.compile(
    rf"{NOUN}\b[^:;!?\n]{{0,60}}: ?(?P<names>[a-z]\w{{0,59}}(?:, ?[a-z]\w{{0,59}}){{0,15}})\s*(?:$|\.)"
)
# One of two fields may be given: Anthropic ("`temperature` and `top_p` cannot both be specified for this model",
# SalesforceAIResearch/MCP-Universe/issues/49) and others. The field that is named last is left out.
_MAY_NOT = "(?:cannot|can.?t|may not|must not|not allowed to)"
_NOT_BOTH = re.compile(
    rf"\b(?:{_MAY_NOT} (?:\w+ )?both|both \S.{{0,80}} {_MAY_NOT}|only one of|mutually exclusive|not both"
    rf"|{_MAY_NOT} be (?:set|used|specified|given) (?:together|at the same time))\b",
    re.IGNORECASE,
)
_OF_LACKS = re.compile(r"\b(?:missing|required)\b", re.IGNORECASE)
_ONLY_IF = re.compile(r"\b(?:when|if|while|unless|with(?:out)?|together|in combination|alongside|for)\b", re.IGNORECASE)


def in_other_words(text: str) -> Iterator[RefusedField]:
    """Yield the fields named in sentences that say, in words of no rule, that something is not taken."""
    names: dict[str, bool] = {}
    for sentence in SENTENCES.split(text):
        if _NOT_BOTH.search(sentence) is not None:
            of_both = [match[match.lastgroup or 0] for match in _NAMED_HERE.finditer(sentence)]
            names |= dict.fromkeys(of_both[1:][-1:], True)
            continue
        if _REFUSES.search(sentence) is None or _OF_VALUES.search(sentence) is not None:
            continue
        first = _NAMED_HERE.search(sentence)
        condition = None if first is None else _ONLY_IF.search(sentence, first.end())
        about = sentence if condition is None else sentence[: condition.start()]
        is_conditional = first is not None and CONDITION.search(sentence, first.end()) is not None
        for match in _NAMED_HERE.finditer(about):
            names.setdefault(match[match.lastgroup or 0], is_conditional)
        for match in _LISTED.finditer(sentence):
            names |= dict.fromkeys(re.split(r", ?", match["names"]), False)
    for name, is_conditional in list(names.items())[:MOST_FIELDS]:
        if path := path_of(name):
            yield RefusedField(path, is_conditional=is_conditional)


def mentioned(text: str, param: str) -> tuple[tuple[str, ...], bool]:
    """Return the one path that a refusal in unknown words mentions, such as "Parametro sconosciuto: seed"; else ().

    And whether the words are about values.
    """
    about = [each for each in SENTENCES.split(text) if _OF_LACKS.search(each) is None]
    # Other languages say "string" and "type" too, also of what they do not know.
    sentences = [(each, _OF_VALUES.search(each) is not None and _FOREIGN.search(each) is None) for each in about]
    for of_values in (False, True):
        chosen = [each for each, is_of_value in sentences if is_of_value is of_values]
        if path := _only_path(chosen, param) if chosen else ():
            return path, of_values
    return (), False


def is_foreign(text: str) -> bool:
    """Whether a refusal is in another language than English."""
    return _FOREIGN.search(text) is not None


def is_of_foreign_value(text: str) -> bool:
    """Whether a refusal says in another language that something is too much, or that its value or kind is wrong."""
    is_of_value = _OF_VALUES.search(text) is not None and _FOREIGN.search(text) is not None
    return is_of_value or _OF_AMOUNTS_AND_KINDS.search(text) is not None


def _only_path(sentences: Sequence[str], param: str) -> tuple[str, ...]:
    """Return ``param``, or the one path in the sentences, where each bare name is the path's end; else ()."""
    if param:
        return path_of(param)
    paths = {path_of(match[0]) for each in sentences for match in _PATH.finditer(each)}
    matches = (match for each in sentences for match in _NAMED_HERE.finditer(_PATH.sub(" ", each)))
    names = {path_of(name) for match in matches if _OF_ERRORS.search(name := match[match.lastgroup or 0]) is None}
    if not paths | names:
        names = {path_of(match[match.lastgroup or 0]) for each in sentences for match in _BY_A_NOUN.finditer(each)}
    is_one = len({path[-1:] for path in paths | names}) == len(paths or names) == 1
    return (paths or names).pop() if is_one else ()
