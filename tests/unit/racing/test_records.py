"""Records whose fields are given by place."""

import ast
import inspect
import io
import tokenize
from collections.abc import Callable

import msgspec
import pytest

from gateway.core.attempts import AttemptRecord
from gateway.core.calls import CallRecord
from gateway.racing import records


@pytest.mark.parametrize(
    ("build", "record"), [(records.attempt_record, AttemptRecord), (records.call_record, CallRecord)]
)
def test_the_values_of_a_record_are_in_the_order_of_its_fields(
    build: Callable[..., object], record: type[msgspec.Struct]
) -> None:
    source = inspect.getsource(build)
    [made] = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == record.__name__
    ]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {each.start[0]: each.string.rpartition("# ")[2] for each in tokens if each.type == tokenize.COMMENT}

    names = [comments[value.end_lineno or 0] for value in made.args]
    assert not made.keywords
    assert tuple(names) == record.__struct_fields__[: len(names)]
