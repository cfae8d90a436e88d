"""A vendor that does not know a beta is asked once more without it; members of what stands in lists likewise."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from providers.simulator import Gate, Status, Step
from tests.app.gateway.key_desk import bearer
from tests.app.gateway.refusals.test_refused_fields import ANSWERS, QUESTION, error_of, refused
from tests.app.gateway.refusals.test_who_taught_it import clients
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve

SENT = ("claude-code-20250219", "interleaved-thinking-2025-05-14", "effort-2025-11-24", "advanced-tool-use-2025-11-20")
KNOWN = ("claude-code-20250219", "interleaved-thinking-2025-05-14")
UNKNOWN = ("effort-2025-11-24", "advanced-tool-use-2025-11-20")
ASKED = {"max_tokens": 9, "messages": QUESTION}
NAMING = (
    "Unexpected value(s) {} for the `anthropic-beta` header. Please consult our documentation at docs.anthropic.com or"
    " try again without the header."
)
AT_MESSAGES = {"config": {"providers": {"alpha": {"apis": ["messages"]}}}}
AT_BOTH = {"config": {"providers": {name: {"apis": ["messages"]} for name in ("alpha", "beta")}}}


def betas_of(headers: Mapping[str, str], name: str = "anthropic-beta") -> list[str]:
    return [each.strip() for each in headers.get(name, "").split(",") if each.strip()]


class Vendor:
    """Refuses the betas that it does not know, as ``said``, and fields of a body without their betas."""

    def __init__(
        self,
        running: RunningGateway,
        said: str,
        *known: str,
        needs: Mapping[str, str] | None = None,
        name: str = "alpha",
    ) -> None:
        self._upstream, self._said, self._known, self._needs = running[name], said, known, needs or {}
        self._upstream.answers = self.answer

    def answer(self, body: Any) -> Sequence[Step]:
        betas = betas_of(self._upstream.received[-1].headers) or list(body.get("anthropic_beta", ()))
        if unknown := [beta for beta in betas if beta not in self._known]:
            named = ", ".join(f"`{beta}`" for beta in unknown)
            return [Status(400, error_of(self._said.replace("{}", named)))]
        for field, beta in self._needs.items():
            if field in body and beta not in betas:
                return [Status(400, error_of(f"{field}: Extra inputs are not permitted"))]
        return ANSWERS["messages"]

    @property
    def asked(self) -> list[list[str]]:
        return [betas_of(each.headers) for each in self._upstream.received]


async def call(
    running: RunningGateway, betas: Sequence[str] = SENT, body: Any = ASKED, path: str = "/v1/messages", **headers: str
) -> tuple[int, str]:
    """Return the status of a call, and what its client is told was left out."""
    sent = {"anthropic-beta": ",".join(betas), **headers} if betas else headers
    async with running.post({"model": MODEL, **body}, path=path, headers=sent) as response:
        await response.read()
    return response.status, response.headers.get("x-holeshot-dropped", "")


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_betas_that_a_refusal_names_are_left_out_and_no_others(serve: Serve, stream: bool) -> None:
    async with serve(alpha=None, **AT_MESSAGES) as running:
        vendor = Vendor(running, NAMING, *KNOWN)
        for sendings in (2, 3):
            status, dropped = await call(running, body=ASKED | {"stream": stream})
            assert (status, set(dropped.split(", "))) == (200, {f"anthropic-beta: {beta}" for beta in UNKNOWN})
            assert len(vendor.asked) == sendings
            assert vendor.asked[-1] == list(KNOWN)
        # Each by its own: who sends one of them with others is asked without that one.
        assert await call(running, (KNOWN[1], UNKNOWN[0])) == (200, f"anthropic-beta: {UNKNOWN[0]}")
        assert await call(running, KNOWN) == (200, "")
        assert vendor.asked[3:] == [[KNOWN[1]], list(KNOWN)]


async def test_where_a_refusal_names_none_those_that_the_body_needs_stay(serve: Serve) -> None:
    managing = "context-management-2025-06-27"
    body = ASKED | {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}
    async with serve(alpha=None, **AT_MESSAGES) as running:
        vendor = Vendor(running, "invalid beta flag", *KNOWN, managing, needs={"context_management": managing})
        for sendings in (2, 3):
            status, dropped = await call(running, (*SENT, managing), body)
            assert (status, len(vendor.asked), vendor.asked[-1]) == (200, sendings, [managing])
            assert dropped.count("anthropic-beta") == len(SENT)
        # Which of them it was is not known: who sends fewer of them keeps all.
        assert await call(running, KNOWN) == (200, "")
        assert vendor.asked[-1] == list(KNOWN)


@pytest.mark.parametrize(
    "said",
    [
        "The long context beta is not yet available for this subscription.",
        "This authentication style is incompatible with the long context beta header.",
    ],
)
async def test_the_long_context_that_an_account_does_not_have_is_left_out_alone(serve: Serve, said: str) -> None:
    long = "context-1m-2025-08-07"
    async with serve(alpha=None, **AT_MESSAGES) as running:
        vendor = Vendor(running, said, *KNOWN)
        for sendings in (2, 3):
            assert await call(running, (*KNOWN, long)) == (200, f"anthropic-beta: {long}")
            assert (len(vendor.asked), vendor.asked[-1]) == (sendings, list(KNOWN))
    async with serve(alpha=None, **AT_MESSAGES) as running:
        running["alpha"].script = [Status(400, error_of(said))]
        assert await call(running, KNOWN) == (400, "")
        assert len(running["alpha"].received) == 1


async def test_a_preference_goes_with_the_beta_that_it_needs(serve: Serve) -> None:
    managing = "context-management-2025-06-27"
    body = ASKED | {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}
    async with serve(alpha=None, **AT_MESSAGES) as running:
        vendor = Vendor(running, "invalid beta flag", *KNOWN, needs={"context_management": managing})
        for sendings in (4, 6, 7):  # all; those that it needs; none; without the field. Then what was left out first
            status, dropped = await call(running, (*SENT, managing), body)
            assert (status, len(vendor.asked)) == (200, sendings)
            assert {"context_management", f"anthropic-beta: {managing}"} <= set(dropped.split(", "))
        # What was left out first was never refused by itself.
        assert await call(running, KNOWN) == (200, "")
        assert vendor.asked[-1] == list(KNOWN)


@pytest.mark.parametrize("said", [NAMING, "invalid beta flag"])
async def test_a_must_is_never_asked_without_its_beta(serve: Serve, said: str) -> None:
    servers, beta = [{"type": "url", "url": "https://mcp.example", "name": "x"}], "mcp-client-2025-11-20"
    body = ASKED | {"mcp_servers": servers}
    async with serve(alpha=None, **AT_MESSAGES) as running:
        vendor = Vendor(running, said, *KNOWN)
        status, dropped = await call(running, (beta,), body)
        assert (status, dropped, vendor.asked) == (400, "", [[beta]])
        assert await call(running, KNOWN) == (200, "")


async def test_a_beta_in_the_body_is_learnt_too(serve: Serve) -> None:
    async with serve(alpha=None, **AT_MESSAGES) as running:
        Vendor(running, NAMING.replace("header", "field").replace("anthropic-beta", "anthropic_beta"), *KNOWN)
        for sendings in (2, 3):
            status, dropped = await call(running, (), ASKED | {"anthropic_beta": list(SENT)})
            assert (status, set(dropped.split(", "))) == (200, {f"anthropic_beta: {beta}" for beta in UNKNOWN})
            assert len(running["alpha"].received) == sendings
            assert running["alpha"].received[-1].body["anthropic_beta"] == list(KNOWN)


async def test_a_beta_of_openais_is_learnt_likewise(serve: Serve) -> None:
    sent = {"openai-beta": "responses=experimental, agents=v9"}
    async with serve(alpha=None) as running:

        def answer(_: Any) -> Sequence[Step]:
            asked = betas_of(running["alpha"].received[-1].headers, "openai-beta")
            unknown = [each for each in asked if each != "responses=experimental"]
            return (
                refused(f"Unknown beta requested: '{unknown[0]}'.", code="invalid_beta") if unknown else ANSWERS["chat"]
            )

        running["alpha"].answers = answer
        for sendings in (2, 3):
            status, dropped = await call(running, (), {"messages": QUESTION}, "/v1/chat/completions", **sent)
            assert (status, dropped, len(running["alpha"].received)) == (200, "openai-beta: agents=v9", sendings)


async def test_in_a_race_who_knows_all_gets_all(serve: Serve) -> None:
    learnt = asyncio.Event()
    async with serve(alpha=None, beta=[Gate(learnt), *ANSWERS["messages"]], **AT_BOTH) as running:
        vendor = Vendor(running, NAMING, *KNOWN)

        def once_learnt(body: Any) -> Sequence[Step]:
            steps = vendor.answer(body)
            if not isinstance(steps[0], Status):
                learnt.set()
            return steps

        running["alpha"].answers = once_learnt
        for first in ("alpha", "beta", "alpha"):
            running.prefer(first, *({"alpha", "beta"} - {first}))
            assert (await call(running))[0] == 200
        assert sum(each == list(SENT) for each in vendor.asked) <= 1
        assert all(betas_of(each.headers) == list(SENT) for each in running["beta"].received)


async def test_what_a_client_writes_in_place_of_a_beta_teaches_nothing(serve: Serve) -> None:
    config = {**AT_MESSAGES["config"], **clients("eve", "ann", "bob")}
    written = "metadata: Extra inputs are not permitted"
    body = ASKED | {"metadata": {"user_id": "u"}}
    async with serve(alpha=None, config=config) as running:
        Vendor(running, NAMING, *KNOWN)
        for name in ("eve", "ann"):
            await call(running, (written,), body, **bearer(f"hs-{name}"))
        for name in ("eve", "bob"):
            assert await call(running, KNOWN, body, **bearer(f"hs-{name}")) == (200, "")
            assert "metadata" in running["alpha"].received[-1].body


async def test_two_clients_teach_it_for_all(serve: Serve) -> None:
    config = {**AT_MESSAGES["config"], **clients("ann", "bob", "cid")}
    async with serve(alpha=None, config=config) as running:
        vendor = Vendor(running, "invalid beta flag", *KNOWN)
        for name, sendings in (("ann", 2), ("ann", 3), ("bob", 5), ("cid", 6)):
            assert (await call(running, **bearer(f"hs-{name}")))[0] == 200
            assert len(vendor.asked) == sendings


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
async def test_another_api_is_sent_no_beta_and_what_needs_it_is_told(serve: Serve, path: str) -> None:
    body = ASKED | {"context_management": {"edits": []}, "speed": "fast"}
    async with serve(alpha=None) as running:
        status, dropped = await call(running, ("context-management-2025-06-27", "fast-mode-2026-02-01"), body, path)
        if path == "/v1/messages":
            assert (status, {"context_management", "speed"} <= set(dropped.split(", "))) == (200, True)
        assert not any("anthropic-beta" in each.headers for each in running["alpha"].received)


# Members of what stands in lists.

MARK = {"type": "ephemeral", "ttl": "1h", "scope": "global"}
SCHEMA = {"type": "object", "properties": {"cache_control": {"type": "string"}}}
MARKED = {
    "max_tokens": 9,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": MARK}],
    "tools": [{"name": name, "input_schema": SCHEMA, "cache_control": MARK} for name in ("a", "b")],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": MARK}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "1", "name": "a", "input": {"cache_control": MARK}}],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "1",
                    "content": [{"type": "text", "text": "ok", "cache_control": MARK}],
                }
            ],
        },
    ],
}


def called(**more: Any) -> dict[str, Any]:
    call = {"id": "1", "type": "function", "function": {"name": "a", "arguments": "{}"}, **more}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


CHAT = {
    "messages": [
        {"role": "user", "content": "Hi", "name": "ann"},
        called(index=0, extra_content={"google": {"thought_signature": "c2lnbmVk"}}),
        {"role": "tool", "tool_call_id": "1", "content": "ok"},
    ]
}
VENDORS = [
    ("messages", "tools.0.custom.cache_control.ephemeral.scope: Extra inputs are not permitted", '"global"', 1),
    ("messages", "system.0.cache_control.scope: Extra inputs are not permitted", '"global"', 1),
    ("messages", "messages.0.content.0.text.cache_control.ttl: Extra inputs are not permitted", '"1h"', 1),
    ("chat", "Unknown parameter: 'messages[1].tool_calls[0].extra_content'.", '"extra_content"', 0),
    ("chat", "Unknown parameter: 'messages[1].tool_calls[0].index'.", '"index"', 0),
    ("chat", "'messages.1.tool_calls.0' : property 'index' is unsupported", '"index"', 0),
    ("chat", 'json: unknown field "extra_content"', '"extra_content"', 0),
    ("chat", "messages[1].tool_calls[0]: unknown field `index`, expected one of `id`, `type`", '"index"', 0),
    ("chat", "messages[0].name: Extra inputs are not permitted", '"ann"', 0),
    (
        "chat",
        "[{'loc': ('body', 'messages', 1, 'tool_calls', 0, 'extra_content'), 'msg': 'Extra inputs are not permitted'}]",
        '"extra_content"',
        0,
    ),
]


@pytest.mark.parametrize(("api", "said", "sign", "left"), VENDORS, ids=lambda each: str(each)[:60])
async def test_a_member_that_is_refused_is_left_out_at_every_place(
    serve: Serve, api: str, said: str, sign: str, left: int
) -> None:
    """``sign`` shows that it is there; it stays where it is the client's own words, as in a call's arguments."""
    body, path = (MARKED, "/v1/messages") if api == "messages" else (CHAT, "/v1/chat/completions")

    def answer(sent: Any) -> Sequence[Step]:
        return refused(said) if json.dumps(sent).count(sign) > left else ANSWERS[api]

    async with serve(alpha=None, config={"providers": {"alpha": {"apis": [api]}}}) as running:
        running["alpha"].answers = answer
        for sendings in (2, 3):
            status, dropped = await call(running, (), body, path)
            assert (status, len(running["alpha"].received)) == (200, sendings), said
            assert len(dropped.split(", ")) == 1
            assert dropped
        assert json.dumps(body).count(sign) > left


async def test_marks_on_tools_are_refused_and_all_others_stay(serve: Serve) -> None:
    async with serve(alpha=None, **AT_MESSAGES) as running:
        running["alpha"].answers = lambda sent: (
            refused("tools.1.custom.cache_control: Extra inputs are not permitted")
            if any("cache_control" in tool for tool in sent["tools"])
            else ANSWERS["messages"]
        )
        for sendings in (2, 3):
            assert await call(running, (), MARKED) == (200, "tools.cache_control")
            assert len(running["alpha"].received) == sendings
        last = running["alpha"].received[-1].body
        assert (last["system"], last["messages"]) == (MARKED["system"], MARKED["messages"])
        assert [tool["input_schema"] for tool in last["tools"]] == [SCHEMA, SCHEMA]


async def test_a_vendor_that_takes_no_marks_names_no_place(serve: Serve) -> None:
    async with serve(alpha=None, **AT_MESSAGES) as running:
        running["alpha"].answers = lambda sent: (
            refused("cache_control: Extra inputs are not permitted")
            if json.dumps(sent).count('"cache_control": {"type": "ephemeral"') > 1
            else ANSWERS["messages"]
        )
        for sendings in (3, 4):  # it may be of those on tools alone
            assert await call(running, (), MARKED) == (200, "tools.cache_control, cache_control")
            assert len(running["alpha"].received) == sendings
        last = running["alpha"].received[-1].body
        assert last["messages"][1] == MARKED["messages"][1]  # type: ignore[index]  # its input is the model's words


async def test_a_vendor_that_takes_none_on_tools_keeps_all_others(serve: Serve) -> None:
    async with serve(alpha=None, **AT_MESSAGES) as running:
        running["alpha"].answers = lambda sent: (
            refused("Bad Request: unrecognizedProperty=cache_control")
            if any("cache_control" in tool for tool in sent["tools"])
            else ANSWERS["messages"]
        )
        for sendings in (2, 3):
            assert await call(running, (), MARKED) == (200, "tools.cache_control")
            assert len(running["alpha"].received) == sendings
        assert running["alpha"].received[-1].body["system"] == MARKED["system"]


async def test_one_value_of_a_member_says_nothing_of_others(serve: Serve) -> None:
    long = json.loads(json.dumps(MARKED).replace('"1h"', '"2h"'))
    async with serve(alpha=None, **AT_MESSAGES) as running:
        running["alpha"].answers = lambda sent: (
            refused("messages.0.content.0.text.cache_control.ttl: Input should be '5m' or '1h'")
            if '"2h"' in json.dumps(sent["messages"][0])
            else ANSWERS["messages"]
        )
        assert await call(running, (), long) == (200, "cache_control.ttl")
        assert await call(running, (), MARKED) == (200, "")
        assert running["alpha"].received[-1].body["system"] == MARKED["system"]


@pytest.mark.parametrize(
    "said",
    [
        "tools.0.custom.input_schema.properties: Extra inputs are not permitted",
        "Unknown parameter: 'messages[1].tool_calls[0].id'.",
        "messages.2.tool_call_id: Extra inputs are not permitted",
    ],
)
async def test_a_member_that_is_a_must_is_never_left_out(serve: Serve, said: str) -> None:
    tools = [{"type": "function", "function": {"name": "a", "parameters": SCHEMA}}]
    config = {"models": {MODEL: {"deployments": [{"deployment": "alpha/m", "drop_params": True}]}}}
    async with serve(alpha=refused(said), config=config) as running:
        status, _ = await call(running, (), CHAT | {"tools": tools}, "/v1/chat/completions")
        assert status == 400
        assert len(running["alpha"].received) == 1


@pytest.mark.parametrize("said", [NAMING, "invalid beta flag"])
@pytest.mark.parametrize("of", ["provider", "deployment"])
async def test_betas_that_an_operator_says_instead_of_the_clients_are_not_the_clients(
    serve: Serve, said: str, of: str
) -> None:
    own = {"anthropic-beta": UNKNOWN[0]}
    provider: dict[str, Any] = {"apis": ["messages"]}
    deployment: dict[str, Any] = {"deployment": "alpha/m"}
    if of == "provider":
        provider["headers"] = own
    else:
        deployment["extra_headers"] = own
    config = {"providers": {"alpha": provider}, "models": {MODEL: {"deployments": [deployment]}}}
    async with serve(alpha=None, config=config) as running:
        vendor = Vendor(running, said, *KNOWN)
        assert await call(running, (*KNOWN, UNKNOWN[0])) == (400, "")
        assert vendor.asked == [[UNKNOWN[0]]]


MCP = "mcp-client-2025-11-20"
WITH_MCP = ASKED | {"mcp_servers": [{"type": "url", "url": "https://mcp.example", "name": "x"}]}


@pytest.mark.parametrize("race", [{"mode": "single"}, {"mode": "race", "width": 2}], ids=["single", "raced"])
async def test_who_has_refused_a_beta_that_is_a_must_is_asked_after_others(serve: Serve, race: dict[str, Any]) -> None:
    config: dict[str, Any] = {**AT_BOTH["config"]}
    config["models"] = {MODEL: {"deployments": ["alpha/m", "beta/m"], "race": race}}
    async with serve(alpha=None, beta=None, config=config) as running:
        running.prefer("alpha", "beta")
        vendor = Vendor(running, NAMING, *KNOWN)
        Vendor(running, NAMING, *KNOWN, MCP, name="beta")
        while not vendor.asked:
            await call(running, (MCP,), WITH_MCP)
        for _ in range(5):
            assert await call(running, (MCP,), WITH_MCP) == (200, "")
        sent = len(running["beta"].received)
        if race["mode"] == "single":
            assert len(vendor.asked) == 1
            # Of what it takes it is asked first, as before.
            assert await call(running, KNOWN) == (200, "")
            assert (len(vendor.asked), len(running["beta"].received)) == (2, sent)


@pytest.mark.parametrize("mode", ["single", "auto", "race"])
async def test_who_refuses_one_and_names_none_is_asked_after_others_too(serve: Serve, mode: str) -> None:
    """Bedrock's words. Once it takes the beta, and was asked for want of another, it is as good as others again."""
    config: dict[str, Any] = {**AT_BOTH["config"]}
    config["models"] = {MODEL: {"deployments": ["alpha/m", "beta/m"], "race": {"mode": mode}}}
    async with serve(alpha=None, beta=None, config=config) as running:
        running.prefer("alpha", "beta")
        vendor = Vendor(running, "invalid beta flag", *KNOWN)
        Vendor(running, "invalid beta flag", *KNOWN, MCP, name="beta")
        while not vendor.asked:
            assert await call(running, (MCP,), WITH_MCP) == (200, "")
        for _ in range(5):
            assert await call(running, (MCP,), WITH_MCP) == (200, "")
        assert vendor.asked == [[MCP]]
        # Which of several it was is not known: what is asked for with another beta is asked of it as before.
        assert await call(running, KNOWN) == (200, "")
        vendor = Vendor(running, "invalid beta flag", *KNOWN, MCP)
        running["beta"].answers = lambda _: [Status(503)]
        for _ in range(2):
            assert await call(running, (MCP,), WITH_MCP) == (200, "")
        known = running.gateway.fleets.learnt("alpha")
        assert known is not None
        assert not known.models


@pytest.mark.parametrize("said", [NAMING, "invalid beta flag"])
async def test_a_fallback_is_asked_for_a_beta_that_its_model_refuses(serve: Serve, said: str) -> None:
    config: dict[str, Any] = {**AT_BOTH["config"]}
    config["models"] = {
        MODEL: {"deployments": ["alpha/m"], "fallbacks": ["other"]},
        "other": {"deployments": ["beta/m"]},
    }
    async with serve(alpha=None, beta=None, config=config) as running:
        vendor = Vendor(running, said, *KNOWN)
        Vendor(running, said, *KNOWN, MCP, name="beta")
        for _ in range(3):
            assert await call(running, (MCP,), WITH_MCP) == (200, "")
        assert all(asked == [MCP] for asked in vendor.asked)
        # Who does not need it goes to the model that was asked for.
        sent = len(running["beta"].received)
        assert await call(running, KNOWN) == (200, "")
        assert len(running["beta"].received) == sent


async def test_where_all_refuse_a_beta_one_is_asked_and_its_refusal_told(serve: Serve) -> None:
    config: dict[str, Any] = {**AT_BOTH["config"]}
    config["models"] = {MODEL: {"deployments": ["alpha/m", "beta/m"], "race": {"mode": "race", "width": 2}}}
    async with serve(alpha=None, beta=None, config=config) as running:
        vendors = [Vendor(running, NAMING, *KNOWN, name=name) for name in ("alpha", "beta")]
        while not all(vendor.asked for vendor in vendors):
            assert (await call(running, (MCP,), WITH_MCP))[0] == 400
        before = sum(len(vendor.asked) for vendor in vendors)
        async with running.post(
            {"model": MODEL, **WITH_MCP}, path="/v1/messages", headers={"anthropic-beta": MCP}
        ) as response:
            assert (response.status, MCP in await response.text()) == (400, True)
        assert sum(len(vendor.asked) for vendor in vendors) == before + 1
        # Once it is taken, all may be asked again.
        for name in ("alpha", "beta"):
            Vendor(running, NAMING, *KNOWN, MCP, name=name)
        for _ in range(4):
            assert await call(running, (MCP,), WITH_MCP) == (200, "")
