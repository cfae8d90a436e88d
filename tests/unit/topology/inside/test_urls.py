"""``redis_url`` in all its forms, and which master of a Cluster serves which keys."""

import pytest
from redis.exceptions import ResponseError

from gateway.topology import RedisUrlError, read_url, why
from gateway.topology.nodes import read_slots


@pytest.mark.parametrize(
    "url", ["redis://localhost:6379/0", "rediss://:s3cret@10.0.0.1/2?ssl_cert_reqs=none", "unix:///run/redis.sock"]
)
def test_a_plain_url_is_what_redis_py_reads(url: str) -> None:
    assert (read_url(url).kind, read_url(url).plain) == ("plain", url)


def test_a_cluster_has_several_hosts_and_one_login() -> None:
    url = read_url("rediss+cluster://me:p%40ss@one:7000,[::1]:7001,three?ssl_ca_certs=/ca.pem")
    assert url.kind == "cluster"
    assert url.hosts == (("one", 7000), ("::1", 7001), ("three", 6379))
    assert url.plain == "rediss://me:p%40ss@one:7000?ssl_ca_certs=%2Fca.pem"


def test_sentinels_have_a_service_a_database_and_a_login_of_their_own() -> None:
    url = read_url("redis+sentinel://:pw@one,two:5000/main/3?sentinel_password=other&sentinel_username=me")
    assert (url.kind, url.service) == ("sentinel", "main")
    assert url.hosts == (("one", 26379), ("two", 5000))
    assert url.plain == "redis://:pw@one:26379/3"
    assert dict(url.login) == {"password": "other", "username": "me"}


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("localhost:6379", "must begin with redis://"),
        ("http://localhost", "must begin with redis://"),
        ("redis+sentinel://:s3cret@one,two", "needs the name of the service"),
        ("redis+sentinel://:s3cret@one/main/two", "needs the name of the service"),
        ("redis://:s3cret@one,two", "names several hosts"),
        ("redis+cluster://:s3cret@one:70000", "has a host that is none"),
        ("redis+cluster://:s3cret@one,,two", "has a host that is none"),
        ("redis://:s3cret@one/cache", "has a database that is no number"),
        ("redis://[s3cret", "has a host that is none"),
    ],
)
def test_what_cannot_be_a_url_is_told_without_its_password(url: str, says: str) -> None:
    with pytest.raises(RedisUrlError, match=says) as caught:
        read_url(url)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("url", ["//[", "//[://one", ""])
def test_what_has_no_scheme_is_no_url_whatever_follows(url: str) -> None:
    with pytest.raises(RedisUrlError, match="must begin with redis://"):
        read_url(url)


def test_a_reply_that_repeats_what_was_asked_is_told_without_that() -> None:
    reply = "unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `default`, `s3cret`, "
    assert why(ResponseError(reply)) == "ResponseError: unknown command `HELLO`"


def test_no_password_is_in_the_repr() -> None:
    assert "s3cret" not in repr(read_url("redis+sentinel://:s3cret@one/main?sentinel_password=s3cret2"))


def test_all_keys_of_a_tag_and_the_name_of_their_shard_are_served_by_one_master() -> None:
    found = read_slots(
        [[0, 99, ["", 7000, "a"]], [100, 9999, ["b", 7001, "b"], ["c", 7002, "c"]], [10000, 16383, [None, 7000, "a"]]],
        ("a", 1),
    )
    assert set(found.masters.values()) == {("a", 7000), ("b", 7001)}
    assert found.nodes == (("a", 7000), ("b", 7001), ("c", 7002))
    assert found.covered == 16384
    for number in range(200):
        shard = found.shard_of(f"holeshot:{{m{number}}}:1")
        assert shard == found.shard_of(f"holeshot:{{m{number}}}:2")
    for shard in found.masters:
        assert found.shard_of(f"holeshot:limits:processes:{{{shard}}}") == shard


def test_a_slot_that_no_master_serves_is_in_no_shard() -> None:
    found = read_slots([[0, 0, ["a", 7000, "a"]]], ("a", 1))
    assert (found.covered, found.shard_of("x")) == (1, "")
    assert list(found.masters.values()) == [("a", 7000)]
