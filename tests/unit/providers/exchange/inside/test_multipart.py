"""Forms: found through without being changed, and changed only where they must be."""

from contextlib import suppress

import msgspec
import pytest

from providers import Form, read_form
from providers.dialects import Malformed

TYPE = 'multipart/form-data; boundary="b b"'
FILE = b"\x00\r\n--b\r\n--b \r\n\xff\r\n"  # nearly a boundary


def part(name: str, value: bytes, head: bytes = b"") -> bytes:
    return b'--b b\r\n%bContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (head, name.encode(), value)


def body(*parts: bytes, preamble: bytes = b"", epilogue: bytes = b"\r\n") -> bytes:
    return preamble + b"".join(parts) + b"--b b--" + epilogue


FORM = body(part("file", FILE, b"Content-Type: audio/wav\r\n"), part("model", b"llama"), part("x", b""))


def test_every_byte_but_the_models_name_stays() -> None:
    assert read_form(TYPE, FORM).rendered("m", {}) == FORM.replace(b"\r\n\r\nllama\r\n", b"\r\n\r\nm\r\n")


@pytest.mark.parametrize("epilogue", [b"", b"\r\n", b"\r\nthe end", b" and more"])
@pytest.mark.parametrize("preamble", [b"", b"\r\n", b"for old mailers\r\n"])
def test_what_stands_around_the_parts_is_not_passed_on(preamble: bytes, epilogue: bytes) -> None:
    odd = body(part("model", b"llama"), preamble=preamble, epilogue=epilogue)
    assert read_form(TYPE, odd).rendered("m", {}) == body(part("model", b"m"))


def test_one_boundary_is_declared_upstream() -> None:
    assert read_form('multipart/form-data; charset=\udcff; Boundary="b b"', FORM).content_type == TYPE
    plain = FORM.replace(b"--b b", b"--WebKit-1")
    assert read_form('multipart/form-data; boundary="WebKit-1"', plain).content_type.endswith("; boundary=WebKit-1")


def test_a_form_without_a_model_is_given_one() -> None:
    rendered = read_form(TYPE, body(part("file", FILE))).rendered("m", {})
    form = read_form(TYPE, rendered)
    assert (form.text("model"), form.names) == ("m", {"file", "model"})
    assert rendered.startswith(part("file", FILE))


def test_every_model_in_a_form_is_the_deployments() -> None:
    assert b"llama" not in read_form(TYPE, body(part("model", b"llama"), part("model", b"llama"))).rendered("m", {})


def test_a_deployments_own_fields_replace_the_senders() -> None:
    extra = {"x": msgspec.Raw(b'"new"'), "y": msgspec.Raw(b"0.5"), "model": msgspec.Raw(b'"no"')}
    form = read_form(
        TYPE, read_form(TYPE, body(part("x", b"1"), part("model", b"a"), part("x", b"2"))).rendered("m", extra)
    )
    assert [(each.name, form.text(each.name)) for each in form.parts] == [("model", "m"), ("x", "new"), ("y", "0.5")]


def test_fields_are_taken_out_without_a_trace() -> None:
    form = read_form(TYPE, body(part("race", b"single"), part("x", b"1"), part("race", b"auto")))
    assert form.without({"race"}).body == body(part("x", b"1"))
    assert form.without({"other"}) is form


@pytest.mark.parametrize(
    ("disposition", "name"),
    [
        (b'form-data; name="a"; filename="x"', "a"),
        (b'form-data; filename="; name=\\"b\\""; name="a"', "a"),
        (b'form-data; filename="a; name=b"; name=a', "a"),
        (b'form-data;name="gr\xc3\xbc\xc3\x9fe"', "grüße"),
        (b'form-data; name="a%22b"', 'a"b'),
        (b'FORM-DATA; NAME="a"', "a"),
        (b'form-data; name=""', ""),
    ],
)
def test_a_name_is_found_and_a_files_name_is_none(disposition: bytes, name: str) -> None:
    raw = b"--b b\r\nContent-Type: x/y\r\ncontent-disposition: %b\r\n\r\nv\r\n--b b--" % disposition
    assert read_form(TYPE, raw).names == {name}


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        ("multipart/form-data", FORM),
        ("multipart/form-data; boundary=", FORM),
        ("multipart/form-data; boundary=\xff", FORM),
        ("multipart/form-data; boundary=other", FORM),
        (TYPE, b""),
        (TYPE, FORM[:-20]),
        (TYPE, b"--b b\r\n\r\nno headers\r\n--b b--"),
        (TYPE, b"--b b\r\nContent-Disposition: attachment; name=x\r\n\r\nv\r\n--b b--"),
        (TYPE, b'--b b\nContent-Disposition: form-data; name="x"\n\nv\n--b b--'),
        (TYPE, part("x", b"") * 1001 + b"--b b--"),
        ('multipart/form-data; x="; boundary=b"; y=z', FORM),
        ('multipart/form-data; boundary="b b"; boundary=c', FORM),
        ('multipart/form-data; boundary="b b"; boundary*=c', FORM),
        (TYPE, body(part("x", b"1", b"Content-Disposition: form-data; name=model\r\n"))),
        (TYPE, body(part("x", b"1", b"Content-Disposition : form-data; name=model\r\n"))),
        (TYPE, body(part("x", b"1", b"X: y\nContent-Disposition: form-data; name=model\r\n"))),
        (TYPE, body(part("x", b"1", b"X: y\r\n folded\r\n"))),
        (TYPE, body(part('x"; name="model', b"1"))),
        (TYPE, body(part("x\"; name*=utf-8''model; y=\"", b"1"))),
        (TYPE, body(part("mod\\el", b"1"))),
        (TYPE, body(part("", b"1")).replace(b'name=""', b"name*=utf-8''model")),
        (TYPE, body(part("x", b'1\n--b b\nContent-Disposition: form-data; name="model"\n\nv'))),
        (TYPE, body(part("x", b'1\r--b b\rContent-Disposition: form-data; name="model"\r\rv'))),
        (TYPE, b'--b b\r\nContent-Disposition: form-data; name="model\r\n\r\nv\r\n--b b--'),
        (TYPE, b"--b b\r\nContent-Disposition: form-data; name=x odd\r\n\r\nv\r\n--b b--"),
        (TYPE, body(part("model\0", b"1"))),
        (TYPE, body(part("x", b"1", b"X: " + b"y" * 20_000 + b"\r\n"))),
    ],
)
def test_what_is_no_form_is_said_to_be_none(kind: str, raw: bytes) -> None:
    with pytest.raises(Malformed):
        read_form(kind, raw)


def test_a_form_cut_anywhere_is_refused_or_whole() -> None:
    for cut in range(len(FORM)):
        with suppress(Malformed):
            assert read_form(TYPE, FORM[:cut]).names == {"file", "model", "x"}, cut


def test_a_text_that_is_none_is_refused() -> None:
    for value in (b"\xff", b"x" * 100_000):
        with pytest.raises(Malformed):
            read_form(TYPE, body(part("model", value))).text("model")
    assert Form(b"b b", FORM, ()).text("model") is None
