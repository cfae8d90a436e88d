"""The upstreams of keys that clients bring: how long they are kept, and how many."""

from gateway.fleet.tenants import KEPT_S, MOST_KEPT, MOST_KEPT_A_CLIENT, TenantUpstreams
from gateway.racing import records
from providers import ClientSecrets, HttpUpstream, Server, Upstream, redact, redact_json, redact_word
from providers.bodies import sse
from providers.refusals import redaction


class Opened:
    """Upstreams that are opened and never asked."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.keys: list[str] = []
        self.kept = TenantUpstreams(self._open, lambda: self.now_s)

    def _open(self, provider: str, key: str) -> Upstream:
        self.keys.append(key)
        return HttpUpstream(Server(provider=provider, base_url="http://127.0.0.1:1"), key)

    @property
    def number(self) -> int:
        return len(self.kept._kept)


def test_one_that_is_used_stays_the_same() -> None:
    opened = Opened()
    first = opened.kept.of("app", "alpha", "key")
    for _ in range(3):
        opened.now_s += KEPT_S - 1
        assert opened.kept.of("app", "alpha", "key") is first
    assert opened.keys == ["key"]


def test_each_that_is_not_used_is_forgotten_whoever_else_calls_and_also_while_nobody_does() -> None:
    opened = Opened()
    opened.kept.of("app", "alpha", "gone")
    opened.now_s += KEPT_S / 2
    opened.kept.of("app", "alpha", "stays")
    opened.now_s += KEPT_S / 2
    opened.kept.of("app", "alpha", "stays")
    assert opened.number == 1
    opened.now_s += KEPT_S
    opened.kept.forget()
    assert opened.number == 0


def test_a_client_with_many_keys_takes_no_place_of_anothers() -> None:
    opened = Opened()
    opened.kept.of("other", "alpha", "key")
    for number in range(MOST_KEPT):
        opened.kept.of("app", "alpha", f"key-{number}")
    assert opened.number == MOST_KEPT_A_CLIENT + 1
    opened.kept.of("other", "alpha", "key")
    opened.kept.of("app", "alpha", f"key-{MOST_KEPT - 1}")
    assert len(opened.keys) == MOST_KEPT + 1


def test_the_oldest_of_all_goes_where_there_are_too_many() -> None:
    opened = Opened()
    for number in range(MOST_KEPT + 1):
        opened.kept.of(f"client-{number}", "alpha", "key")
    assert opened.number == MOST_KEPT


def test_one_that_is_let_go_keeps_no_connections_whyever_it_is() -> None:
    opened = Opened()
    long_ago = opened.kept.of("other", "alpha", "key")
    opened.now_s += KEPT_S
    opened.kept.forget()
    all_of_one = [opened.kept.of("app", "alpha", f"key-{number}") for number in range(MOST_KEPT_A_CLIENT + 1)]
    others = [opened.kept.of(f"client-{number}", "alpha", "key") for number in range(MOST_KEPT)]
    retired = [each for each in (long_ago, *all_of_one, *others) if each._client._retired]  # type: ignore[attr-defined] # of HttpUpstream
    assert retired == [long_ago, *all_of_one]


def test_nothing_of_a_clients_key_stays_in_what_the_process_remembers() -> None:
    def remembered() -> list[int]:
        return [each.cache_info().currsize for each in (redaction._sought, sse.as_sent, records._clean)]

    before, key = remembered(), "a-long-key-of-a-client"
    secrets = ClientSecrets([key])
    assert redact(f"no: {key}", secrets) == "no: ***"
    assert redact_word(key, secrets) == "***"
    assert redact_json({"id": key}, secrets) == {"id": "***"}
    assert records.short(key, secrets) == "***"
    assert sse.masked_body(f'{{"id":"{key}"}}'.encode(), secrets) == b'{"id":"***"}'
    assert remembered() == before
