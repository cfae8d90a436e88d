"""What a request may say of its own race: it is stronger than its client's profile, and that than the model's."""

from itertools import product
from typing import Any

import msgspec
import pytest

from gateway.access import Client
from gateway.api import RaceOverride, with_override
from gateway.api.overrides import NOTHING, read_override, withheld
from gateway.core.attempts import WinOn
from gateway.core.calls import Mode, Objective
from gateway.core.errors import Forbidden, InvalidRequest
from gateway.fleet import Model
from gateway.settings import Profile, RaceSettings, TakeoverSettings, When

ANYBODY = Client()


def model(**race: Any) -> Model:
    """A model without deployments, as its settings and each profile would have it."""
    settings = RaceSettings.model_validate(race)
    others = {profile: Model("m", {}, settings.under(profile)) for profile in Profile}
    return Model("m", {}, settings, profiles=others)


def asked(of: Model, client: Client = ANYBODY, *, stateful: bool = False, **race: Any) -> RaceSettings:
    """The race of a call whose body says ``race``."""
    override = read_override(msgspec.Raw(msgspec.json.encode(race)), None) if race else NOTHING
    return with_override(of, override, client, stateful=stateful).race


def test_an_object_says_everything_a_request_may_say() -> None:
    said = {
        "profile": "voice",
        "mode": "hedge",
        "width": 3,
        "hedge_delay_s": 0.5,
        "win_on": "answer",
        "objective": "cost",
        "ttft_ms": 800,
        "min_tok_s": 50,
        "reading_tok_s": 90,
        "hold": False,
    }

    override = read_override(msgspec.Raw(msgspec.json.encode(said)), None)

    assert override == RaceOverride(
        Profile.VOICE, Mode.HEDGE, 3, 0.5, WinOn.ANSWER, Objective.COST, 800, 50, 90, hold=False
    )


@pytest.mark.parametrize("word", [*Mode, *Profile])
def test_one_word_is_a_mode_or_a_profile_in_the_body_and_in_the_header(word: str) -> None:
    in_body = read_override(msgspec.Raw(msgspec.json.encode(word)), None)

    assert in_body == read_override(None, word) == read_override(None, f'"{word}"')
    assert (in_body.mode or in_body.profile) == word


def test_the_body_goes_before_the_header() -> None:
    assert read_override(msgspec.Raw(b'{"width": 3}'), "single") == RaceOverride(width=3)


@pytest.mark.parametrize("nothing", [None, "", "  ", "null"])
def test_no_header_asks_for_nothing(nothing: str | None) -> None:
    assert read_override(None, nothing) == NOTHING


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ('"fastest"', "fastest"),
        ('{"width": 0}', ">= 1"),
        ('{"width": 9}', "<= 8"),
        ('{"hedge_delay_s": -1}', ">= 0"),
        ('{"objective": "speed"}', "speed"),
        ('{"profile": "gaming"}', "gaming"),
        ('{"ttft_ms": 0}', "> 0"),
        ('{"budget": 3}', "budget"),
        ('{"usd_per_day": 3}', "usd_per_day"),
        ('{"extra_usd_per_call": 3}', "extra_usd_per_call"),
        ('{"value_usd_per_s": 3}', "value_usd_per_s"),
        ("3", "Expected"),
        ("{", "truncated"),
    ],
)
def test_what_makes_no_sense_is_answered_with_the_reason_and_what_does(said: str, words: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_override(msgspec.Raw(said.encode()), None)

    assert refused.value.param == "race"
    assert words in refused.value.message
    assert "a mode (single, race, hedge, auto), a profile (chat, voice, agent, batch)" in refused.value.message
    assert (
        "profile, mode, width, hedge_delay_s, win_on, objective, ttft_ms, min_tok_s, reading_tok_s"
        in refused.value.message
    )


def test_a_request_without_wishes_gets_the_model_itself() -> None:
    configured = model(width=3)

    assert with_override(configured, NOTHING, ANYBODY, stateful=False) is configured


def test_the_request_is_stronger_than_the_client_and_the_client_than_the_model() -> None:
    configured = model(profile="agent")
    client = Client(profile=Profile.VOICE)

    assert asked(configured).objective is Objective.COMPLETION
    assert asked(configured, client).min_tok_s == 100
    assert asked(configured, client, profile="chat").min_tok_s == 30
    assert asked(configured, client, profile="chat", min_tok_s=45).min_tok_s == 45
    assert asked(configured, client, min_tok_s=45).profile is Profile.VOICE


def test_no_request_raises_what_the_operator_pays() -> None:
    configured = model(budget=0.1, usd_per_day=5.0)

    for profile in Profile:
        race = asked(configured, profile=profile, mode="race", width=8)
        assert race.budget <= 0.1
        assert race.usd_per_day == 5.0


@pytest.mark.parametrize(("when", "takeover"), list(product(When, (None, False))))
def test_a_rival_is_withheld_exactly_if_its_client_is_told_so(when: When, takeover: bool | None) -> None:
    configured = model()
    voice = msgspec.structs.replace(configured.profiles[Profile.VOICE], takeover=TakeoverSettings(when=when))
    given = TakeoverSettings(when=When.ALWAYS)
    configured = msgspec.structs.replace(configured, takeover=given, profiles={Profile.VOICE: voice})
    override = RaceOverride(Profile.VOICE, takeover=takeover)

    race = with_override(configured, override, ANYBODY, stateful=False).race

    assert ("keep_rival" in withheld(configured, override, ANYBODY)) is (race.keep_rival is False)
    assert (race.keep_rival is False) is (when is not When.NEVER and takeover is None)


def test_a_request_raises_what_an_attempt_must_save_and_never_lowers_it() -> None:
    assert asked(model(), worth_ms=50.0).worth_ms == 50.0
    assert asked(model(), worth_ms=0.0).worth_ms == RaceSettings().worth_ms
    assert asked(model(worth_ms=80.0), worth_ms=50.0).worth_ms == 80.0


def test_a_race_wider_than_the_key_may_start_is_refused() -> None:
    with pytest.raises(Forbidden, match="at most 2 deployments at once, not 3"):
        asked(model(), Client(max_width=2), width=3)


def test_a_race_asked_for_without_a_width_is_no_wider_than_the_key_may_start() -> None:
    narrow = Client(max_width=1)

    assert asked(model(width=4), narrow, mode="race").width == 1
    assert asked(model(), narrow, profile="voice").width == 1
    assert asked(model(mode="race", width=4), narrow).width == 4  # the operator's own choice


def test_a_key_that_may_not_race_has_no_fewer_attempts_for_having_asked() -> None:
    narrow = Client(max_width=1)

    assert asked(model(), narrow, mode="race").mode is Mode.AUTO
    assert asked(model(mode="hedge"), narrow, mode="race").mode is Mode.HEDGE
    own = asked(model(mode="race", width=4), narrow, mode="race")
    assert (own.mode, own.width) == (Mode.RACE, 4)


@pytest.mark.parametrize("race", [{"mode": "race"}, {"width": 1}, {"profile": "chat"}])
def test_a_key_may_be_kept_from_saying_anything(race: dict[str, Any]) -> None:
    with pytest.raises(Forbidden, match="may not set how its calls are raced"):
        asked(model(), Client(override=False), **race)


def test_a_key_that_may_say_nothing_still_has_its_profile() -> None:
    assert asked(model(), Client(override=False, profile=Profile.VOICE)).profile is Profile.VOICE


@pytest.mark.parametrize(
    ("race", "words"),
    [
        ({"objective": "cost"}, "objective cost chooses the cheapest that is fast enough: set ttft_ms"),
        ({"hedge_delay_s": 0.5}, "hedge_delay_s has an effect in mode hedge only, not in auto"),
        ({"min_tok_s": 9000}, "min_tok_s 9000 cannot be met"),
    ],
)
def test_a_wish_that_contradicts_itself_is_refused(race: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        asked(model(), **race)

    assert words in refused.value.message


def test_what_leaves_something_behind_at_the_provider_is_never_sent_twice() -> None:
    assert asked(model(mode="race"), stateful=True).mode is Mode.SINGLE
    assert asked(model(), stateful=True, profile="voice").mode is Mode.SINGLE


PLAIN: dict[str, Any] = {}
WRITTEN = [{"objective": "reading"}, {"objective": "completion"}]
UNWRITTEN = [
    PLAIN,
    {"objective": "auto"},
    {"objective": "first_token"},
    {"objective": "cost", "ttft_ms": 900},
    *({"profile": profile} for profile in Profile),
    *({"mode": mode} for mode in Mode),
    {"win_on": "answer"},
    {"win_on": "sentence"},
    {"reading_tok_s": 90, "min_tok_s": 50, "ttft_ms": 900},
]


@pytest.mark.parametrize("profile", [None, *Profile])
def test_the_first_token_of_a_stream_wins_at_once_unless_an_objective_is_written(profile: Profile | None) -> None:
    client = Client(profile=profile)
    for of_model, of_request in product(UNWRITTEN, UNWRITTEN):
        race = asked(model(**of_model), client, **of_request)
        assert (race.holds(streamed=True), race.holds(streamed=False)) == (False, True), (of_model, of_request)


@pytest.mark.parametrize("written", WRITTEN, ids=str)
def test_who_writes_an_objective_may_be_held(written: dict[str, Any]) -> None:
    assert asked(model(**written)).holds(streamed=True)
    assert asked(model(**written, profile="chat")).holds(streamed=True)
    for other in UNWRITTEN:
        assert asked(model(**other), Client(profile=Profile.VOICE), **written).holds(streamed=True)
        assert asked(model(**other), **{"profile": "chat", **other, **written}).holds(streamed=True)


@pytest.mark.parametrize("written", WRITTEN, ids=str)
@pytest.mark.parametrize("weaker", ["auto", "first_token"])
def test_an_objective_that_is_replaced_asks_for_no_hold(written: dict[str, Any], weaker: str) -> None:
    assert not asked(model(**written), objective=weaker).holds(streamed=True)
    for profile in Profile:
        assert not asked(model(**written), Client(profile=profile)).holds(streamed=True)
        assert not asked(model(**written), profile=profile).holds(streamed=True)


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("profile", [None, *Profile])
@pytest.mark.parametrize("hold", [True, False])
def test_hold_is_stronger_than_any_objective_and_the_requests_stronger_than_the_models(
    hold: bool, profile: Profile | None, streamed: bool
) -> None:
    client = Client(profile=profile)
    for each in (*WRITTEN, *UNWRITTEN):
        for other in (*WRITTEN, *UNWRITTEN):
            assert asked(model(hold=hold, **each), client, **other).holds(streamed=streamed) is hold
        assert asked(model(hold=not hold, **each), client, hold=hold).holds(streamed=streamed) is hold
