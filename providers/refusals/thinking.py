"""Words of refusals about thinking, and how much of it, that name no field."""

import re

from providers.refusals.refused_fields import LITERALS

# Of thinking, without a field's name: Ollama (itayinbarr/little-coder/issues/86), Gemini
# (RooCodeInc/Roo-Code/issues/10700, lobehub/lobehub/issues/7985, googleapis/js-genai/issues/681).
OF_THINKING = re.compile(
    r"does(?: not|n.t) support (?:extended |adaptive )?(?:thinking|reasoning)\b"
    r"|(?:thinking|reasoning)(?: level| budget| mode)? is (?:not supported|not enabled|only enabled when)"
    r"|(?:thinking|reasoning)_?config.{0,40} is only enabled when",
    re.IGNORECASE,
)
# An effort is refused, and its field is not named: "This model only works in thinking mode", by Gemini of a request for
# no thinking (docker/docker-agent/issues/2051, earendil-works/pi/issues/3460); and by xAI.
OF_EFFORT = re.compile(
    r"only works in thinking mode|invalid reasoning effort\."
    r"|(?:not support setting|cannot set|can't set) thinking_?budget to 0"
    # In other words: of OpenRouter, where a model always thinks, of Gemini's budgets, and of proxies.
    r"|\b(?:reasoning|thinking) (?:is mandatory|cannot be (?:disabled|turned off))|only supports thinking\b"
    r"|\bthinking[ _]?budget\b[^.;!?\n]{0,40}\b(?:is invalid|exceeds|must be between)\b"
    r"|\b(?:unknown|unsupported|unrecogni[sz]ed) (?:reasoning|thinking)[ _.]?(?:effort|level)\b"
    rf"|\b(?:reasoning|thinking)[ _.]?(?:effort|level)\W{{1,4}}{LITERALS}\b['\"`]? (?:is |are )?(?:not |un[ksr])",
    re.IGNORECASE,
)
# The effort ``xhigh`` alone, which few models take; in a list of efforts it may be one that is taken.
_EFFORTS_BESIDE = rf"(?:{LITERALS}['\"`]? ?(?:[,|/\u3001]|,? (?:or|and)\b) ?['\"`]?)"
OF_XHIGH = re.compile(
    rf"(?P<listed>{_EFFORTS_BESIDE}xhigh\b|\bxhigh['\"`]? ?(?:[,|/\u3001]|,? (?:or|and)\b) ?['\"`]?{LITERALS}\b)"
    r"|(?<![\w./-])xhigh(?![/-]|\.?\w)",
    re.IGNORECASE,
)
