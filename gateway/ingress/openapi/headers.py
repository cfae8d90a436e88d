"""The headers that the gateway reads and sends, described."""

from collections.abc import Mapping

from gateway.ingress import headers
from gateway.ingress.openapi.operation import Parameter, Schema, flag, number, text
from gateway.ingress.plan_header import PLAN_HEADER
from gateway.ingress.preferences.deadlines import DEADLINE, LLM_D_TPOT, LLM_D_TTFT
from gateway.ingress.preferences.override import HEADER as RACE_HEADER
from gateway.ingress.preferences.resolved_model import IGNORED, LOWERED
from gateway.ingress.relayed.counting import ESTIMATED
from gateway.ingress.succession import FALLBACK

REQUEST_ID = Parameter(
    name="x-request-id",
    place="header",
    description="An id of yours: logged, sent to providers, and returned. At most 200 characters.",
)
TAGS = Parameter(
    name="x-holeshot-tags",
    place="header",
    description="`name=value, name=value`: stored with the call, so that calls can be compared in SQL. At most 16.",
)
RACE = Parameter(
    name=RACE_HEADER,
    place="header",
    description="How this call is raced: a mode, a profile, or the body's object `race` as JSON. The body counts more.",
)
CALL_HEADERS = (
    REQUEST_ID,
    TAGS,
    RACE,
    Parameter(
        name=DEADLINE,
        place="header",
        schema=number(),
        description="Milliseconds from the receipt of the request to the first token. The strictest deadline counts.",
    ),
    Parameter(name=LLM_D_TTFT, place="header", schema=number(), description=f"The same as `{DEADLINE}`, for llm-d."),
    Parameter(
        name=LLM_D_TPOT,
        place="header",
        schema=number(),
        description="Milliseconds per token after the first: 20 stands for `min_tok_s: 50`.",
    ),
    Parameter(
        name=PLAN_HEADER, place="header", description="`1`: the answer has the plan of its race in this same header."
    ),
)

# Headers of answers. Which of them an answer has depends on how it was made.
IDENTIFYING = ("x-request-id", "request-id")
OF_CALLS = (
    "x-holeshot-call-id",
    *IDENTIFYING,
    "x-holeshot-provider",
    "x-holeshot-deployment",
    "x-holeshot-mode",
    "x-holeshot-launched",
    "x-holeshot-upstream-request-id",
    "x-holeshot-dropped",
    LOWERED,
    IGNORED,
    FALLBACK,
    headers.NARROWED,
    PLAN_HEADER,
    "x-holeshot-cost-usd",
    "x-holeshot-ttft-ms",
)
OF_RACES = (*OF_CALLS, "x-holeshot-overhead-ms", "x-holeshot-deadline-met")

DESCRIBED: Mapping[str, Schema] = {
    "x-holeshot-call-id": text("The call's id: `calls.id` in SQL."),
    "x-request-id": text("The id that your request had in `x-request-id`, else the call's."),
    "request-id": text("Your request id, or the call's, where Anthropic's SDKs look for it."),
    "x-holeshot-provider": text("The provider that answered."),
    "x-holeshot-deployment": text("The deployment that answered."),
    "x-holeshot-mode": text("How the call was raced: `race`, `hedge` or `single`."),
    "x-holeshot-launched": text("How many attempts were launched."),
    "x-holeshot-ttft-ms": number("Milliseconds from the receipt of the request to the first token."),
    "x-holeshot-overhead-ms": number(
        "Milliseconds of `x-holeshot-ttft-ms` that the gateway itself took, a wait for a seat included."
    ),
    "x-holeshot-deadline-met": flag("Whether the first token came within the deadline; only if there was one."),
    "x-holeshot-cost-usd": number("US dollars at list price; in answers that do not stream, where prices are known."),
    "x-holeshot-upstream-request-id": text("The provider's id of its request."),
    "x-holeshot-dropped": text("Parameters that the deployment was not sent, as `drop_params` allows."),
    LOWERED: text("Parameters that were lowered to the model's maximum."),
    IGNORED: text("Preferences that have no effect here."),
    FALLBACK: text("The model that answered instead of the one that was asked for."),
    headers.NARROWED: text("The limit because of which an extra attempt was not launched."),
    PLAN_HEADER: text("The plan as JSON, if the request asked for it."),
    ESTIMATED: flag("The number is an estimate: no deployment of the model counts tokens."),
    "retry-after": text("Seconds until it is worth trying again."),
    "etag": text("Names this state of the body: send it back as `if-none-match`, and an unchanged answer is a 304."),
}


def described(names: tuple[str, ...]) -> Schema:
    """Return the headers object of an answer with these headers."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
