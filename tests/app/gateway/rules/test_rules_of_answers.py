"""Each rule of answers is one: in each API of a provider, for clients of each, in every form of asking.

Of all pairs of a rule and a form a part is tried: always some, and what was wrong once, and some by the seed.
``WHOLE=1`` tries all.
"""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.app.gateway.rules.asking import (
    APIS,
    BACKGROUND,
    CLIENTS,
    FORMS,
    RACED,
    Desk,
    Rule,
    Said,
    asked,
    running,
    said_in,
)
from tests.app.gateway.rules.odd import ODD
from tests.app.gateway.rules.table import RULES
from tests.app.gateway.running_gateway import RunningGateway
from tests.support.orders import wrong_order
from tests.support.searched import some

# Of the pairs of a rule and a form, for each pair of APIs: so many are always tried, and so many by the seed.
EACH, DRAWN = 12, 15
ALL = [*RULES, *ODD]
# Its server says that it ends with each event: chat has no other place for that, and clients read on to [DONE].
AS_THEY_COME = {("chat", "gemini: a word with each event")}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("api", APIS)
async def test_an_answer_says_the_same_in_every_form(api: str, client: str, tmp_path: Path) -> None:
    wrong: dict[str, Any] = {}
    pairs = [
        (rule, form)
        for rule, form in product(ALL, (*FORMS, RACED, BACKGROUND))
        if rule.api == api and is_asked(rule, client, form)
    ]
    firsts = {rule.name: (rule, form) for rule, form in reversed(pairs) if rule.once_wrong}
    async with running(tmp_path) as (desk, gateway):
        for rule, form in some(pairs, always=[*pairs[::EACH], *firsts.values()], drawn=DRAWN):
            if difference := await found(desk, gateway, rule, client, form):
                wrong[f"{rule.name}, {form}"] = difference
    assert wrong == {}


def is_asked(rule: Rule, client: str, form: str) -> bool:
    """Whether a rule's answer can be asked for in a form, and is more than passed on."""
    stream, is_whole = FORMS.get(form, FORMS["streamed"])
    said = rule.said_to(client)
    if form == BACKGROUND:
        return client == rule.api == "responses" and "id" in (rule.body or ()) and not rule.passes_whole
    if form == RACED and (said.error is not None or not (said.text or said.calls)):  # it waits for the other one
        return False
    if is_whole and rule.body is None:
        return False
    if client != rule.api:
        return True
    return not (rule.passes_whole or (rule.passes and stream and not is_whole))  # byte for byte


async def found(desk: Desk, gateway: RunningGateway, rule: Rule, client: str, form: str) -> Any:
    """Return what a client of an API gets that is not what the rule says; None where that is all right."""
    stream, desk.is_whole = FORMS.get(form, FORMS["streamed"])
    desk.rule, desk.is_slow = rule, form == RACED
    model = f"{rule.api}-{RACED}" if form == RACED else rule.api
    more = {"background": True, "store": True} if form == BACKGROUND else {}
    stream = stream and form != BACKGROUND
    is_plain = form == RACED and not (rule.said.calls or rule.said.thoughts)
    got = await asked(gateway, client, model, stream=stream, plainly=is_plain, **more)
    said = said_in(client, *got, stream=stream)
    if not is_same(said, rule.said_to(client)):
        return said
    is_translated = client != rule.api and (client, rule.name) not in AS_THEY_COME
    if stream and said.error is None and is_translated and (wrong := wrong_order(client, got[1])):
        return wrong
    if form == BACKGROUND or rule.said_to(client).error is not None:
        return None
    provider = f"provider = '{rule.api}'"
    [row, *_] = await gateway.rows(f"select * from attempts where {provider} order by rowid desc limit 1")
    row["units"] = {unit: told["n"] for unit, told in json.loads(row["units"] or "{}").items()}
    told = {name: row[name] for name in rule.tokens or {}}
    return None if told == (rule.tokens or {}) else told


def is_same(said: Said, wanted: Said) -> bool:
    """Whether an answer says what it should. What was said before an error is not there where nothing was sent yet."""
    if wanted.error is not None:
        return said.ended == "error" and wanted.error in (said.error or "") and said.text in {wanted.text, ""}
    return (said.text, said.thoughts, [*said.calls], said.ended) == (
        *(wanted.text, wanted.thoughts),
        *([*wanted.calls], wanted.ended),
    ) and ([*said.cited], [*said.tokens], [*said.pictures], said.sound) == (
        *([*wanted.cited], [*wanted.tokens]),
        *([*wanted.pictures], wanted.sound),
    )
