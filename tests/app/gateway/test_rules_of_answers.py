"""Each rule of answers is one: in each API of a provider, for clients of each, streamed, whole and raced."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.app.gateway.rules.asking import APIS, CLIENTS, FORMS, RACED, Desk, Rule, Said, asked, running, said_in
from tests.app.gateway.rules.table import RULES
from tests.app.gateway.running_gateway import RunningGateway


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("api", APIS)
async def test_an_answer_says_the_same_in_every_form(api: str, client: str, tmp_path: Path) -> None:
    wrong: dict[str, Any] = {}
    async with running(tmp_path) as (desk, gateway):
        for rule in (each for each in RULES if each.api == api):
            for form in (*FORMS, RACED):
                if difference := await found(desk, gateway, rule, client, form):
                    wrong[f"{rule.name}, {form}"] = difference
    assert wrong == {}


async def found(desk: Desk, gateway: RunningGateway, rule: Rule, client: str, form: str) -> Any:
    """Return what a client of an API gets that is not what the rule says; None where that is all right."""
    stream, desk.is_whole = FORMS.get(form, FORMS["streamed"])
    desk.rule = rule
    is_raced = form == RACED
    has_won = rule.said.error is None and bool(rule.said.text or rule.said.calls)  # else it waits for the other one
    if (desk.is_whole and rule.body is None) or (is_raced and not has_won):
        return None
    if rule.passes and client == rule.api and stream and not desk.is_whole:  # byte for byte
        return None
    model = f"{rule.api}-{RACED}" if is_raced else rule.api
    said = said_in(client, *await asked(gateway, client, model, stream=stream), stream=stream)
    if not is_same(said, rule.said):
        return said
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
    )
