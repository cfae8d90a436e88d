"""Who made reasoning that only its maker can read: found however answers are cut, and told to other replicas."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from gateway.core.calls import Maker
from gateway.racing import Makers
from gateway.racing.services import HEARD, MOST_MAKERS
from providers import BoundReasoningExchange, Fact, Kind, LearntFacts, Request
from providers.dialects import CHAT, MESSAGES, RESPONSES, SEARCHED_BYTES, Dialect, UnshownThought, bound_reasoning

TEXTS = {
    "responses": b'data: {"item":{"type":"reasoning","encrypted_content":"%b"}}\n\n',
    "messages": b'data: {"type":"content_block_delta","delta":{"type":"signature_delta","signature":"%b"}}\n\n',
    "redacted": b'data: {"content_block":{"type":"redacted_thinking","data":"%b"}}\n\n',
    "google": b'data: {"candidates":[{"content":{"parts":[{"thoughtSignature": "%b"}]}}]}\r\n\r\n',
}
KEPT = b'{"data": "bWFkZQ==", "type": "redacted_thinking"}', b'{"thought_signature":"bWFkZQ=="}'
[HASH] = bound_reasoning(b'"signature":"bWFkZQ=="')


class Blocks:
    """An exchange with these blocks, of which the last is pushed if its reader listens."""

    status = 200
    headers: Mapping[str, str] = MappingProxyType({})
    connect_ms: float | None = None
    secrets: Sequence[str] = ()
    ended = finishing = False
    usage_so_far = None

    def __init__(self, *blocks: bytes) -> None:
        self.blocks = list(blocks)
        self.listener: Callable[[bytes], bool] | None = None

    async def read(self) -> bytes:
        if self.listener is not None and len(self.blocks) > 1 and self.listener(self.blocks[0]):
            del self.blocks[0]
        return self.blocks.pop(0) if self.blocks else b""

    def conclude(self) -> bytes:
        return b""

    def offer_to(self, listener: Callable[[bytes], bool]) -> None:
        self.listener = listener

    def abort(self) -> None:
        pass


@pytest.mark.parametrize("pushed", [False, True])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
async def test_reasoning_is_found_however_its_answer_is_cut(text: bytes, pushed: bool) -> None:
    whole = text % b"bWFkZQ=="
    for cut in range(1, len(whole)):
        found = list[bytes]()
        exchange = BoundReasoningExchange(Blocks(whole[:cut], whole[cut:]), found.append)
        if pushed:
            exchange.offer_to(lambda _: True)
        while await exchange.read():
            pass
        assert found == [HASH], whole[:cut]


async def test_an_answer_without_a_last_line_break_is_looked_in_too() -> None:
    found = list[bytes]()
    exchange = BoundReasoningExchange(Blocks(b'{"signature":"bWFkZQ=="}'), found.append)
    while await exchange.read():
        pass
    assert found == [HASH]


@pytest.mark.parametrize("kept", KEPT)
def test_it_is_the_same_as_clients_send_it_back(kept: bytes) -> None:
    assert bound_reasoning(kept) == [HASH]
    assert bound_reasoning(kept.replace(b"=", b"\\u003d")) == [HASH]


def test_the_newest_is_last_and_nothing_else_is_found() -> None:
    names = [b'{"signature":"%b"}' % name for name in (b"a", b"b")]
    redacted = b'{"type":"redacted_thinking","data":"c"}'
    in_order = [bound_reasoning(each)[0] for each in (names[0], redacted, names[1])]
    assert bound_reasoning(b",".join([names[0], redacted, names[1]])) == in_order
    for other in (
        b'{"data":"c","type":"base64"}',
        b'{"text":"\\"signature\\":\\"x\\""}',
        b'{"signature":{"type":"x"}}',
    ):
        assert bound_reasoning(other) == []


class Shared:
    """What replicas share, and who was asked."""

    def __init__(self) -> None:
        self.told: dict[str, str] = {}
        self.asked = 0

    def wants(self, maker: Maker) -> bool:
        return maker is not None

    async def share(self, name: str, value: str) -> None:
        self.told[name] = value

    async def ask(self, name: str) -> str | None:
        self.asked += 1
        return self.told.get(name)


class Tasks:
    """Tasks that run when they are told to."""

    def __init__(self) -> None:
        self.waiting: list[Coroutine[Any, Any, None]] = []

    async def run(self) -> None:
        while self.waiting:
            await self.waiting.pop(0)


async def test_another_replica_knows_who_made_it() -> None:
    shared, tasks = Shared(), Tasks()
    one, other = (Makers(shared, tasks.waiting.append) for _ in range(2))
    for _ in range(3):  # told once
        one.remember(b"r", Maker("a/m", "…last"))
    assert len(tasks.waiting) == 1
    await tasks.run()
    assert await other.find([b"older", b"r"]) == Maker("a/m", "…last")
    assert await one.find([b"r", b"unknown"]) == Maker("a/m", "…last")
    assert shared.asked == len((b"older", b"r"))  # the one that knows does not ask
    shared.told["00"] = "what another program wrote"
    assert await other.find([b"\0"]) is None


async def test_where_the_newest_is_asked_for_the_makers_of_the_others_are_known_too() -> None:
    shared, tasks = Shared(), Tasks()
    one, other = (Makers(shared, tasks.waiting.append) for _ in range(2))
    history = [bytes([number]) for number in range(4)]
    for number, piece in enumerate(history[1:]):
        one.remember(piece, Maker(f"seller{number % 2}/m"))
    await tasks.run()
    assert await other.find(history) == Maker("seller0/m")
    assert other.of_each(history) == one.of_each(history)
    assert shared.asked == len(history)
    await other.find(history)
    assert shared.asked == len(history)  # it knows the newest


async def test_without_others_only_this_process_knows_and_the_oldest_is_forgotten() -> None:
    makers = Makers()
    for number in range(MOST_MAKERS + 1):
        makers.remember(number.to_bytes(4), Maker("a/m"))
    assert await makers.find([(0).to_bytes(4)]) is None
    assert await makers.find([(1).to_bytes(4)]) == Maker("a/m")
    assert await makers.find([]) is None


@pytest.mark.parametrize("shift", range(-60, 4))
def test_reasoning_is_found_in_a_long_conversation_wherever_a_slice_of_it_ends(shift: int) -> None:
    data = b'["' + b"x" * (SEARCHED_BYTES + shift) + b'",{"type":"reasoning","signature":"bWFkZQ=="},"' + b"x" * 999
    assert bound_reasoning(data) == [HASH]
    assert bound_reasoning(data.replace(b"signature", b"assignature")) == []


TOLD = (
    b'event: message_start\ndata: {"type":"message_start","message":{"role":"assistant","input_transformations":['
    b'{"type":"thinking_dropped","path":"messages.1.content.0","reason":"prefix_binding_mismatch"},'
    b'{"type":"thinking_mismatch_allowed","path":"messages.3.content.0","reason":"prefix_binding_mismatch"}]}}\n\n'
)


@pytest.mark.parametrize("pushed", [False, True])
async def test_what_a_model_was_not_shown_is_told_once_however_its_answer_is_cut(pushed: bool) -> None:
    whole = TOLD + b'event: ping\ndata: {"type": "ping"}\n\n'
    read_told = MESSAGES.answers.unshown
    assert read_told is not None
    for cut in range(1, len(whole)):
        told, heard = list[Sequence[UnshownThought]](), list[bytes]()
        exchange = BoundReasoningExchange(Blocks(whole[:cut], whole[cut:]), lambda _: None, read_told, told.append)
        if pushed:

            def hear(data: bytes, heard: list[bytes] = heard) -> bool:
                heard.append(data)
                return True

            exchange.offer_to(hear)
        while data := await exchange.read():
            heard.append(data)
        assert (told, b"".join(heard)) == ([[UnshownThought("messages[1].content[0]", "prefix")]], whole)


def unshown(dialect: Dialect, event: Any) -> Sequence[UnshownThought] | None:
    assert dialect.answers.unshown is not None
    return dialect.answers.unshown(b"event: any\ndata: %b\n\n" % msgspec.json.encode(event))


@pytest.mark.parametrize(
    ("reason", "check"),
    [
        ("prefix_binding_mismatch", "prefix"),
        ("model_binding_mismatch", "model"),
        ("organization_binding_mismatch", "account"),
        ("end_user_binding_mismatch", "user"),
        ("a secret, or a word of next year", "other"),
    ],
)
def test_each_check_has_a_word(reason: str, check: str) -> None:
    entry = {"type": "thinking_dropped", "path": "messages.1.content.0", "reason": reason}
    found = unshown(MESSAGES, {"message": {"input_transformations": [entry]}})
    assert found == [UnshownThought("messages[1].content[0]", check)]
    item = {"type": "reasoning_dropped", "id": "rs_1", "reason": reason.replace("_binding", "")}
    found = unshown(RESPONSES, {"response": {"input_transformations": [item]}})
    assert found == [UnshownThought("input[rs_1]", check)]


def test_the_last_event_that_tells_counts() -> None:
    """A vendor's own fallback tells at the end what its model was not shown."""
    last = {"type": "message_delta", "delta": {}, "input_transformations": []}
    assert unshown(MESSAGES, last) == []
    assert MESSAGES.answers.unshown is not None
    assert MESSAGES.answers.unshown(TOLD + b"data: %b\n\n" % msgspec.json.encode(last)) == []


def test_only_what_the_vendor_tells_in_its_place_counts() -> None:
    entry = {"type": "thinking_dropped", "path": "messages.1.content.0", "reason": "prefix_binding_mismatch"}
    assert unshown(MESSAGES, {"message": {"content": [{"input": {"input_transformations": [entry]}}]}}) is None
    assert unshown(RESPONSES, {"response": {"tools": [{"input_transformations": [entry]}]}}) is None
    assert unshown(MESSAGES, {"message": {"input_transformations": "none"}}) is None
    [found] = unshown(MESSAGES, {"message": {"input_transformations": [{**entry, "path": "what was said"}]}}) or ()
    assert found.path == "messages"
    [found] = unshown(RESPONSES, {"response": {"input_transformations": [{**entry, "id": "what was said"}]}}) or ()
    assert found.path == "input"


SONNET = "claude-sonnet-5-5"
ONE, TWO, THREE = (Maker("a/m", name) for name in ("one", "two", "three"))
APART = Fact(Kind.ACCOUNT, "one", value="two")
IN_TURN_1 = b'"input_transformations":[{"type":"thinking_dropped","path":"messages.1.content.0","reason":"%b"}]'
OTHERS = b"data: {" + IN_TURN_1 % b"organization_binding_mismatch" + b"}\n\n"
EDITED = b"data: {" + IN_TURN_1 % b"prefix_binding_mismatch" + b"}\n\n"


async def answered(
    makers: Makers, by: Maker, answer: bytes, learnt: LearntFacts, *bound: bytes, client: str = "a"
) -> None:
    """Have ``by`` answer a request with this reasoning."""
    request = Request(SONNET, {}, MESSAGES, client=client)
    exchange = makers.watched(Blocks(answer), request, by, learnt, bound=bound, told=lambda _: None, refuses=False)
    while await exchange.read():
        pass


async def test_that_keys_are_two_accounts_is_learnt_of_what_the_gateway_saw_one_of_them_make() -> None:
    makers, learnt = Makers(), LearntFacts()
    await answered(makers, ONE, b'data: {"signature":"bWFkZQ=="}\n\n', learnt)
    assert await makers.find([HASH]) == msgspec.structs.replace(ONE, made=True)
    for answer in (b"data: {}\n\n", EDITED):
        await answered(makers, TWO, answer, learnt, HASH)
        assert learnt.of(SONNET, "a") == ()
    await answered(makers, TWO, OTHERS, learnt, HASH)
    assert (learnt.of(SONNET, "a"), learnt.of(SONNET, "b")) == ((APART,), ())  # as all that one client has met
    await answered(makers, TWO, OTHERS, learnt, HASH, client="b")
    assert learnt.of(SONNET, "c") == (APART,)
    assert await makers.find([HASH]) == msgspec.structs.replace(ONE, made=True)


async def test_what_a_client_has_from_elsewhere_teaches_nothing_of_keys_nor_beside_what_they_made() -> None:
    makers, learnt = Makers(), LearntFacts()
    makers.remember(HASH, msgspec.structs.replace(ONE, made=True))
    makers.remember(b"of three", msgspec.structs.replace(THREE, made=True))
    for bound in ((b"foreign",), (b"foreign", HASH), (HASH, b"of three")):
        await answered(makers, TWO, OTHERS, learnt, *bound)
        assert learnt.models == {}
        assert await makers.find([b"foreign"]) is None  # who was sent it could not read it


async def test_who_answers_where_nothing_is_refused_is_not_taken_for_the_maker_of_what_another_made() -> None:
    makers = Makers()
    makers.remember(HASH, ONE)
    await answered(makers, TWO, b"data: {}\n\n", LearntFacts(), HASH, b"unknown")
    assert [await makers.find([each]) for each in (HASH, b"unknown")] == [ONE, TWO]


GPT, QWEN = (Maker(f"{name}", made=True) for name in ("openai/gpt-5", "ollama/qwen3:8b"))


async def read(makers: Makers, by: Maker, *bound: bytes) -> None:
    """Have ``by`` answer a request with this reasoning."""
    request = Request(by.model, {}, RESPONSES)
    reader = msgspec.structs.replace(by, made=False)
    exchange = makers.watched(Blocks(b"data: {}\n\n"), request, reader, LearntFacts(), bound=bound, told=None)
    while await exchange.read():
        pass


async def test_answers_in_chat_are_heard_until_long_enough_none_had_reasoning() -> None:
    makers = Makers()

    async def answered_in_chat(answer: bytes) -> None:
        request = Request("m", {}, CHAT)
        exchange = makers.watched(Blocks(answer), request, Maker("litellm/m"), LearntFacts(), bound=(), told=None)
        while await exchange.read():
            pass

    makers.note_refused([b"unknown"], "claude")
    for _ in range(HEARD - 1):
        await answered_in_chat(b"data: {}\n\n")
    assert makers.hears_all
    await answered_in_chat(b'data: {"signature":"bWFkZQ=="}\n\n')
    assert await makers.find([HASH]) == Maker("litellm/m", made=True)
    for _ in range(HEARD):
        assert makers.hears_all
        await answered_in_chat(b"data: {}\n\n")
    assert not makers.hears_all
    makers.note_refused([HASH], "claude")  # whose maker is known
    assert not makers.hears_all


async def test_a_server_that_takes_anything_is_not_taken_for_the_maker_of_what_it_was_sent() -> None:
    makers = Makers()
    makers.remember(HASH, GPT)
    await read(makers, QWEN, HASH, b"unknown")
    await read(makers, GPT, HASH)  # nor is it only its reader
    assert makers.of_each([HASH, b"unknown"]) == {HASH: GPT}


@pytest.mark.parametrize("dialect", [MESSAGES, RESPONSES], ids=["messages", "responses"])
def test_of_a_history_of_several_makers_only_what_one_made_is_left_out(dialect: Dialect) -> None:
    def turn(signature: str) -> Mapping[str, Any]:
        if dialect is RESPONSES:
            return {"type": "reasoning", "encrypted_content": signature, "summary": []}
        block = {"type": "thinking", "thinking": "hm", "signature": signature}
        return {"role": "assistant", "content": [block, {"type": "text", "text": "yes"}]}

    prompt = [turn("bWFkZQ=="), turn("b3RoZXI=")]
    without = dialect.requests.thoughts.without_those
    assert without is not None
    wording = without({dialect.requests.prompt: msgspec.Raw(msgspec.json.encode(prompt))}, frozenset({HASH}))
    left = bound_reasoning(bytes(wording.fields[dialect.requests.prompt]))
    assert left == bound_reasoning(b'"signature":"b3RoZXI="')
    assert len(wording.losses) == 1


async def test_which_model_it_is_counts_and_not_its_name_at_its_provider() -> None:
    claude = Maker("a/llama", made=True, same_as="claude-sonnet-5")
    makers = Makers()
    await read(makers, claude, b"unknown")
    assert makers.of_each([b"unknown"]) == {b"unknown": msgspec.structs.replace(claude, made=False)}
