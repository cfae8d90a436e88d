"""A report says how the Python was built that ran."""

import platform

import pytest

from benchmarks.harness import report


@pytest.mark.parametrize(
    ("config_args", "built"),
    [
        ("'--enable-optimizations' '--with-lto' 'CC=gcc'", "built with PGO and with LTO by GCC 12.2.0"),
        ("'--enable-shared' '--enable-optimizations'", "built with PGO and without LTO by GCC 12.2.0"),
        ("'--with-lto=thin'", "built without PGO and with LTO by GCC 12.2.0"),
        ("'--with-lto=no'", "built without PGO and without LTO by GCC 12.2.0"),
        ("", "built without PGO and without LTO by GCC 12.2.0"),
        (None, "built by GCC 12.2.0, optimisations unknown"),
    ],
)
def test_optimisations_are_read_from_what_configure_was_given(config_args: str | None, built: str) -> None:
    assert report.built(config_args, "GCC 12.2.0") == built


def test_this_interpreter_is_described() -> None:
    assert platform.python_version() in report.described()
    assert platform.python_compiler() in report.described()
