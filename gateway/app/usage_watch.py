"""Finds providers that count tokens unlike others: twice as many cost twice as much, and look faster."""

from collections.abc import Callable
from math import hypot, inf, sqrt
from statistics import median
from typing import NamedTuple

import structlog

from gateway.core.attempts import AttemptRecord, Outcome, TokensSource

# A provider's report on a prompt or an answer is compared with the gateway's own estimate of the same text. For each
# deployment's answers a line is fitted by least squares: reported = factor * estimated + surplus, each answer with the
# weight of its length. The line is compared with those of the model's other deployments: tokenizers differ, languages
# and code differ from words, and both differences are shared. Without other deployments only an answer's factor far
# from that of any known text is logged.

ANSWERS = 20  # of a deployment, between comparisons
LEAST_TEXTS = 10  # of a deployment, for a comparison
FAR_OFF_FACTOR = 1.6  # ratio to the others' tokens for the same estimate, up or down; honest tokenizers differ by less
ERRORS = 2.0  # standard errors: the least distance of the factor beyond FAR_OFF_FACTOR
KNOWN_TEXTS = (0.25, 6.0)  # tokens for four characters: below any text's; above, only few tokenizers' Chinese
UNSEEN = 0.4  # residual from the line, as a share: above, thinking was not sent, or a cache was not counted
# Ratio to the estimate, for a prompt to that of the whole body. Of two deployments, the one farther from this ratio is
# suspected.
USUAL = {"answer": 1.0, "prompt": 0.8}
# A constant surplus is logged from so many tokens on, if it is so many standard errors.
SURPLUS_TOKENS = 50
SURPLUS_ERRORS = 5.0
SAME_SLOPE = 1.3  # ratio of two lines' slopes, up to which the difference is a surplus
NOTED_TOKENS = 500  # a smaller constant surplus of a prompt is mostly a template, and is only noted
DOUBTFUL = 0.75  # least share of answers with impossible counts to log
CHARS_PER_TOKEN = 4
SHORTEST_TOKENS = 10  # estimated; shorter texts are not used
ANSWERS_KEPT = 1000  # at this number, the weight of earlier ones is halved
LOGGED_EVERY_S = 3600.0
NOTED_EVERY_S = 86_400.0
MODELS_WATCHED = 1000  # clients may name any list of models: beyond this number, only the last is watched

_log = structlog.get_logger(__name__)


class UsageWatch:
    """Compares reported tokens by model; logs a warning, once an hour, for a deployment that is far off.

    ``clock`` is monotonic, in seconds. ``on_far_off`` is called with model and deployment for each comparison with such
    a result. The view ``provider_errors`` does the same in the ledger for answers, by their tokens per character.
    """

    def __init__(self, clock: Callable[[], float], on_far_off: Callable[[str, str], None] = lambda *_: None) -> None:
        self._clock = clock
        self._on_far_off = on_far_off
        self._stated: dict[str, dict[str, _Stated]] = {}  # by model and deployment
        self._logged_at_s: dict[tuple[str, str, str], float] = {}

    def answered(self, model: str, attempt: AttemptRecord) -> None:
        """Add the attempt that answered a call, with its costs settled."""
        source = attempt.tokens_source
        is_believed = source is TokensSource.REPORTED
        if attempt.outcome is not Outcome.WON or not (is_believed or attempt.reported_tokens is not None):
            return
        chars, prompt = attempt.chars or 0, attempt.asked_tokens or 0
        is_text = chars >= SHORTEST_TOKENS * CHARS_PER_TOKEN and not attempt.reasoning_tokens
        if is_believed and not (is_text or prompt >= SHORTEST_TOKENS):
            return  # reasoning without streamed text has no characters
        by_deployment = self._stated.get(model)
        if by_deployment is None:
            if len(self._stated) >= MODELS_WATCHED:
                self._stated.popitem()
            by_deployment = self._stated[model] = {}
        stated = by_deployment.get(attempt.deployment) or by_deployment.setdefault(attempt.deployment, _Stated())
        stated.answers += 1
        if not is_believed:
            stated.doubtful += 1
        else:
            if is_text and attempt.completion_tokens:
                stated.answer.add(chars / CHARS_PER_TOKEN, attempt.completion_tokens)
            if prompt >= SHORTEST_TOKENS and attempt.prompt_tokens:
                stated.prompt.add(prompt, attempt.prompt_tokens)
        if stated.answers >= ANSWERS:
            self._compare(model, attempt)
            stated.answers = stated.doubtful = 0

    def _compare(self, model: str, attempt: AttemptRecord) -> None:
        name, by_deployment = attempt.deployment, self._stated[model]
        stated = by_deployment.pop(name)
        try:
            others = list(by_deployment.values())
            findings = (
                _judged("answer", stated.answer, [each.answer for each in others if each.answer.n >= LEAST_TEXTS]),
                _judged("prompt", stated.prompt, [each.prompt for each in others if each.prompt.n >= LEAST_TEXTS]),
            )
        finally:
            by_deployment[name] = stated
        if stated.doubtful >= DOUBTFUL * stated.answers:
            counted = max(1, attempt.completion_tokens or 0, attempt.prompt_tokens or 0)
            findings = (_Finding("count", (attempt.reported_tokens or 0) / counted), None)
        for finding in findings:
            if finding is not None and finding.is_note:
                self._note(model, name, finding)
        far = next((each for each in findings if each is not None and not each.is_note), None)
        if far is not None:
            self._warn(model, name, far)

    def _warn(self, model: str, deployment: str, found: "_Finding") -> None:
        self._on_far_off(model, deployment)
        if self._is_due((model, deployment, "far_off"), LOGGED_EVERY_S):
            # Event usage.far_off: A deployment reports `times` as many tokens `of` its prompts or answers as others of
            # the model do for such texts, or as these can have; with `surplus_tokens` so many more for each. `of` is
            # `count` where counts cannot be (none for a text), so that estimates are used. Costs and tok/s come from
            # what providers report.
            # Do: Compare its usage and bill with another provider's for one text.
            _log.warning(
                "usage.far_off",
                model=model,
                deployment=deployment,
                of=found.of,
                times=round(found.times, 2),
                surplus_tokens=None if found.surplus is None else round(found.surplus),
                effect="costs and tok/s are computed from the tokens that the provider reports",
                hint="compare its usage with another provider's for the same text",
            )

    def _note(self, model: str, deployment: str, found: "_Finding") -> None:
        if self._is_due((model, deployment, "surplus"), NOTED_EVERY_S):
            # Event usage.surplus: A deployment reports `surplus_tokens` more for each prompt than others of the model:
            # mostly a chat template, or instructions that its provider adds.
            # Do: Ask the provider what it adds.
            _log.info("usage.surplus", model=model, deployment=deployment, surplus_tokens=round(found.surplus or 0.0))

    def _is_due(self, key: tuple[str, str, str], every_s: float) -> bool:
        now_s = self._clock()
        if now_s - self._logged_at_s.get(key, -inf) < every_s:
            return False
        if len(self._logged_at_s) >= MODELS_WATCHED:
            self._logged_at_s.clear()
        self._logged_at_s[key] = now_s
        return True


class _Finding(NamedTuple):
    """An odd report ``of`` prompt, answer or every count: the factor, and the surplus of tokens, if constant."""

    of: str
    times: float
    surplus: float | None = None

    @property
    def is_note(self) -> bool:
        """Whether the report is a mere note: it costs little, and is mostly no fault."""
        return self.of == "prompt" and self.surplus is not None and self.surplus < NOTED_TOKENS


class _Stated:
    """The reports of one deployment. ``answers``: since the last comparison; ``doubtful``: those not believed."""

    __slots__ = ("answer", "answers", "doubtful", "prompt")

    def __init__(self) -> None:
        self.answers = self.doubtful = 0
        self.answer = _Reports()
        self.prompt = _Reports()


class _Line(NamedTuple):
    """The line of some reports: means of estimate, report and their ratio, the ratio's error; slope and surplus."""

    estimated: float
    reported: float
    ratio: float
    ratio_error: float
    residual: float  # share
    slope: float
    slope_error: float  # inf: all texts had the same length
    surplus: float
    surplus_error: float


class _Reports:
    """Sums of reports, over estimates of the same texts: of 1 / estimate (u) and report / estimate (r)."""

    __slots__ = ("n", "r", "rr", "u", "ur", "uu", "x", "y")

    def __init__(self) -> None:
        self.n = 0
        self.x = self.y = self.u = self.r = self.uu = self.ur = self.rr = 0.0

    def add(self, estimated: float, reported: int) -> None:
        """Add one report."""
        if self.n >= ANSWERS_KEPT:
            self.n //= 2
            for name in ("x", "y", "u", "r", "uu", "ur", "rr"):
                setattr(self, name, getattr(self, name) / 2)
        u, r = 1.0 / estimated, reported / estimated
        self.n += 1
        self.x += estimated
        self.y += reported
        self.u += u
        self.r += r
        self.uu += u * u
        self.ur += u * r
        self.rr += r * r

    def line(self) -> _Line:
        """Return the line of at least two reports."""
        n, u, r = self.n, self.u / self.n, self.r / self.n
        spread = max(0.0, self.uu - n * u * u)
        varied = max(0.0, self.rr - n * r * r)
        slope, slope_error, surplus, surplus_error = r, inf, 0.0, inf
        residual = varied
        if spread > 1e-3 * self.uu and n > 2:  # noqa: PLR2004 - a line has two parameters
            surplus = (self.ur - n * u * r) / spread
            residual = max(0.0, varied - surplus * surplus * spread)
            slope = r - surplus * u
            surplus_error = sqrt(residual / (n - 2) / spread)
            slope_error = sqrt(residual / (n - 2) * (1 / n + u * u / spread))
        return _Line(
            self.x / n,
            self.y / n,
            r,
            sqrt(varied / (n - 1) / n) / r,
            sqrt(residual / (n - 1)) / r,
            slope,
            slope_error,
            surplus,
            surplus_error,
        )


def _judged(of: str, mine: _Reports, others: list[_Reports]) -> _Finding | None:
    """Return the oddness of a deployment's reports beside those of ``others``; None without one, or with too few."""
    if mine.n < LEAST_TEXTS:
        return None
    if others:
        return _beside(of, mine.line(), sorted((each.line() for each in others), key=lambda each: each.ratio))
    line, (low, high) = mine.line(), KNOWN_TEXTS
    is_odd = of == "answer" and line.residual <= UNSEEN and not low < line.ratio < high
    return _Finding(of, line.ratio) if is_odd else None


def _beside(of: str, line: _Line, others: list[_Line]) -> _Finding | None:
    """Return the oddness of a line beside ``others``, which are sorted by their ratio; None without one."""
    rival = others[(len(others) - 1) // 2]
    usual = median(each.ratio for each in others)
    upper = others[len(others) // 2]
    if upper.ratio > FAR_OFF_FACTOR * rival.ratio:  # of two that disagree, the nearer one
        rival = upper if line.ratio * line.ratio > upper.ratio * rival.ratio else rival
        usual = rival.ratio
    is_the_usual_one = len(others) == 1 and _oddness(of, line.ratio) <= _oddness(of, usual)
    if is_the_usual_one or line.residual > max(UNSEEN, 1.5 * rival.residual):
        return None
    times, surplus = line.ratio / usual, line.surplus - rival.surplus
    least_surplus = max(SURPLUS_TOKENS, SURPLUS_ERRORS * hypot(line.surplus_error, rival.surplus_error))
    least = FAR_OFF_FACTOR * (1 + ERRORS * hypot(line.ratio_error, rival.ratio_error))
    is_parallel = rival.slope / SAME_SLOPE <= line.slope <= rival.slope * SAME_SLOPE
    if surplus >= least_surplus and is_parallel:
        return _Finding(of, times, surplus)
    if 1 / least <= times <= least:
        return None
    # Otherwise the difference may be a template's: these reports do not show which.
    is_factor = times < 1 or line.slope_error < (SAME_SLOPE - 1) * line.slope
    return _Finding(of, times, None if is_factor or of != "prompt" else line.reported - usual * line.estimated)


def _oddness(of: str, ratio: float) -> float:
    from_usual = ratio / USUAL[of]
    return max(from_usual, 1 / from_usual)
