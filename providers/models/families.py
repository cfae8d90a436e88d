"""What a model is and takes, by its family, read from ``families.toml`` beside this file: a model is a row of data.

Everybody who has to know how a model differs from others asks ``traits_of``. No other file names a model.
"""

import re
import tomllib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple

import msgspec

Sampling = Literal["free", "one", "none"]  # temperature and top_p: both, one of the two, or neither (nor top_k)
# What a request that forbids thinking is changed to: no thinking, thinking between tools alone, or a low effort.
LeastThinking = Literal["off", "between_tools", "low"]
# Whether a request may force a call. auto: a request may neither force nor forbid a call.
ForcedTools = Literal["taken", "not_while_thinking", "never", "auto"]
Bound = Literal["prefix", "models", "account"]  # to the text before it, to models, to an account


class Traits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a model is and takes. The defaults are those of an unknown model: it is taken for one of the newest."""

    family: str = ""  # the family's name in ``families.toml``; "": not known
    least_thinking: LeastThinking = "off"
    rests: bool = False  # the model does not think unless a request asks for thinking
    forced_tools: ForcedTools = "taken"  # whether a request may force a call of a tool
    not_thinking: Mapping[str, Any] = {}  # fields of a chat request that stop the model's thinking
    # How it is told how hard to think: by an effort, a budget of tokens, or a level of Google's.
    adaptive: bool = True  # the model itself decides how long to think
    takes_effort: bool = True
    takes_budget: bool = True
    takes_levels: bool = True
    efforts: tuple[str, ...] = ()  # the efforts that are accepted; empty: not known
    least_effort: str = "low"  # in Google's words: none, minimal or low
    # Which parameters of a request the model takes.
    sampling: Sampling = "free"
    temperatures: tuple[float, float] | None = None  # the least and the most accepted; None: those of the API
    penalties: bool = False  # of Google's models: some penalties are accepted
    several: bool = True  # n above 1 is accepted
    logprobs: bool = False  # of Google's models: log probabilities are returned
    addresses: bool = True  # of Google's models: files at others' addresses are read
    drop: frozenset[str] = frozenset()  # parameters that are answered with an error
    drop_within: frozenset[str] = frozenset()  # likewise, paths within an object: ``text.verbosity``
    at_rest: frozenset[str] = frozenset()  # of these, parameters that are accepted in a request without thinking
    one_of: tuple[str, ...] = ()  # parameters of which one is accepted: several are an error
    lacks_tiers: frozenset[str] = frozenset()  # values of service_tier that are answered with an error
    rename: Mapping[str, str] = {}  # from a parameter's older name to the name that is accepted
    prefill: bool = True  # an answer that the request begins is continued
    tools_in: str = ""  # the one API of the vendor for tools and thinking together, if the model ``rests``; "": all
    # What it keeps of a conversation.
    instructions_last: bool = False  # in Responses, ``instructions`` stand behind the input, outside of what is cached
    signs: bool = False  # the model signs or encrypts thoughts, and refuses those of other models
    bound: frozenset[Bound] = frozenset()
    marks_from: int = 1024  # tokens: a shorter beginning is not cached, where what to cache is marked
    breakpoints: bool = False  # OpenAI's marks end what is cached; without marks the newest turn does
    # Made of the others, once for all calls.
    takes_forced: bool = True  # a request may force a call of a tool, if need be without thinking
    takes_none: bool = False  # an effort of none is known to mean no thinking, or as little as possible
    narrows: bool = False  # other parameters are accepted than by the vendor's other models
    changes: bool = False  # by more than leaving out what it drops
    is_usual: bool = True  # none of this matters to a request


UNKNOWN_MODEL = Traits()
_FORCED: frozenset[ForcedTools] = frozenset({"taken", "not_while_thinking"})  # if need be without thinking


class _Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which models of a family a row is about: all that match each of the row's conditions."""

    names: tuple[str, ...] = ()  # patterns with *; for a fine-tuned model the name of its base
    lines: tuple[str, ...] = ()
    since: str = ""  # the first version
    before: str = ""  # the first version that is not meant
    at: tuple[str, ...] = ()  # vendors, by their names in the catalog
    page: str = ""  # the source
    read: str = ""  # when, ISO
    also: frozenset[str] = frozenset()  # refused parameters, besides those of the rows above
    takes: frozenset[str] = frozenset()  # parameters that are accepted though the rows above say otherwise; *: all
    traits: Mapping[str, Any]

    def fits(self, name: str, line: str, version: tuple[int, int] | None, vendor: str) -> bool:
        if self.at and vendor not in self.at:
            return False
        if self.names and not any(fnmatchcase(name, pattern) for pattern in self.names):
            return False
        if self.lines and line not in self.lines:
            return False
        if self.since and (version is None or version < _version(self.since)):
            return False
        return not (self.before and (version is None or version >= _version(self.before)))


class _Family(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # A regular expression that finds a model of the family. Its groups are line, older (line), major and minor; for a
    # line that is numbered in another way, number and size.
    name: str
    at: tuple[str, ...] = ()  # vendors: elsewhere its models are of no family
    all: Mapping[str, Any] = {}  # the traits of all models of the family
    rows: tuple[_Row, ...] = ()


_NO_FAMILIES = frozenset({"makers", "plain"})
_ROW_FIELDS = frozenset(_Row.__struct_fields__) - {"traits"}


def _version(said: str) -> tuple[int, int]:
    major, _, minor = said.partition(".")
    return int(major), int(minor or 0)


@cache
def _told() -> Mapping[str, Any]:
    return tomllib.loads(files(__package__).joinpath("families.toml").read_text(encoding="utf-8"))


@cache
def _plain() -> tuple[re.Pattern[str], re.Pattern[str]]:
    told = _told()["plain"]
    return re.compile(told["families"], re.IGNORECASE), re.compile(told["unless"], re.IGNORECASE)


@cache
def _makers() -> Mapping[str, re.Pattern[str]]:
    return {maker: re.compile(name, re.IGNORECASE) for maker, name in _told()["makers"].items()}


@lru_cache(maxsize=4096)
def maker_of(model: str) -> str:
    """Return a model's maker, if only that maker's models can read its thoughts; ``open``: all can; "": not known."""
    name = model.rpartition("/")[2]
    return next((maker for maker, pattern in _makers().items() if pattern.search(name) is not None), "")


def reads_thoughts(model: str, of: str) -> bool | None:
    """Whether a model reads the encrypted or signed thoughts of the model ``of``; None: not known."""
    own, other = maker_of(model), maker_of(of)
    if own == "open" or (own and own == other):
        return True
    return None if not own or not other else False


def is_plain(name: str) -> bool:
    """Whether a model, named without a publisher, is of a family that does not think."""
    plain, taught = _plain()
    return plain.search(name) is not None and taught.search(name) is None


@cache
def _families() -> Mapping[str, tuple[re.Pattern[str], _Family]]:
    """Return the families by name, in the order of the file, which is read once."""
    found = {}
    for family, given in _told().items():
        if family in _NO_FAMILIES:
            continue
        rows = [
            {name: value for name, value in row.items() if name in _ROW_FIELDS}
            | {"traits": {name: value for name, value in row.items() if name not in _ROW_FIELDS}}
            for row in given.get("rows", ())
        ]
        parsed = msgspec.convert({**given, "rows": rows}, _Family)
        found[family] = re.compile(parsed.name, re.IGNORECASE), parsed
    return found


@lru_cache(maxsize=4096)
def traits_of(model: str, vendor: str = "") -> Traits:
    """Return the traits of ``model`` at a ``vendor``, by any of its names: ``us.anthropic.claude-opus-5-5-v1:0``.

    A model of a known family that no row names inherits the traits of the rows before.
    """
    name = model.rpartition("/")[2].lower()
    for family, (pattern, told) in _families().items():
        found = pattern.search(name)
        if found is None or (told.at and vendor not in told.at):
            continue
        said: dict[str, Any] = {"family": family, **told.all}
        kin = _read(family, found)
        version = None if kin.major is None else (kin.major, int(found.groupdict().get("minor") or 0))
        bare = name.removeprefix("ft:").partition(":")[0]
        for row in told.rows:
            if row.fits(bare, kin.line, version, vendor):
                said.update(row.traits)
                dropped = frozenset() if "*" in row.takes else frozenset(said.get("drop", ())) | row.also
                said["drop"] = dropped - row.takes
        traits = msgspec.convert(said, Traits)
        changes = bool(traits.rename or traits.efforts or traits.one_of or traits.lacks_tiers)
        narrows = changes or bool(traits.drop or traits.drop_within)
        return msgspec.structs.replace(
            traits,
            takes_forced=traits.forced_tools in _FORCED,
            narrows=narrows,
            changes=changes,
            takes_none=bool(traits.not_thinking) or (bool(traits.efforts) and not traits.rests),
            is_usual=(
                traits.forced_tools == "taken"
                and not narrows
                and not traits.not_thinking
                and traits.least_thinking == "off"
                and "prefix" not in traits.bound
            ),
        )
    return UNKNOWN_MODEL


def unforced(traits: Traits, *, forbids: bool) -> Traits:
    """Return the traits of a model that refused to be forced to call a tool. ``forbids``: also to be forbidden one."""
    refused: ForcedTools = "never" if forbids else "auto"
    return msgspec.structs.replace(traits, forced_tools=refused, takes_forced=False, is_usual=False)


def refusing(traits: Traits, fields: frozenset[str]) -> Traits:
    """Return the traits of a model that is asked where these parameters are an error, though accepted elsewhere."""
    return msgspec.structs.replace(traits, drop=traits.drop | fields, narrows=True, changes=True, is_usual=False)


def within(traits: Traits, temperatures: tuple[float, float]) -> Traits:
    """Return the traits of a model that is asked where other ``temperatures`` are an error, as ``refusing`` does."""
    return msgspec.structs.replace(traits, temperatures=temperatures, narrows=True, changes=True, is_usual=False)


class Kin(NamedTuple):
    """The parts of a model's name that others of the family may share."""

    family: str
    line: str  # opus, sonnet, …; "": none
    major: int | None  # the version's first number; None: there is none
    is_known: bool = True  # the family has rows


def _read(family: str, found: re.Match[str]) -> Kin:
    groups = found.groupdict()
    major = groups.get("major")
    return Kin(family, groups.get("line") or groups.get("older") or "", None if major is None else int(major))


# For a family without rows: the family is a name's first word, with the publisher's; the next word is the line.
_WORDS = re.compile(r"(?P<family>(?:[a-z]+\.)*[a-z]+)(?=-|$|\d)(?:[^-]*-(?P<line>[a-z]{3,})(?=-|$))?")


def kin_of(model: str, family: str | None = None) -> Kin | None:
    """Return what ``model`` shares with others; None: the model is of another family, or its name has no words."""
    name = model.rpartition("/")[2].lower()
    families = {own: pattern for own, (pattern, told) in _families().items() if not told.at}
    for own, pattern in families.items():
        if family in {None, own} and (found := pattern.search(name)) is not None:
            kin, groups = _read(own, found), found.groupdict()
            if (number := groups.get("number")) is None:  # a line that is numbered in another way, with sizes
                return kin
            return Kin(own, "-".join(filter(None, (kin.line, groups["size"]))), int(number))
    if family in families or (found := _WORDS.match(name)) is None or family not in {None, found["family"]}:
        return None
    return Kin(found["family"], found["line"] or "", None, is_known=False)
