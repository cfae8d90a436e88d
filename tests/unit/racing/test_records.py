"""Records whose fields are given by place."""

import ast
import inspect
import io
import tokenize

from gateway.core.attempts import AttemptRecord
from gateway.racing import records


def test_the_values_of_an_attempts_record_are_in_the_order_of_its_fields() -> None:
    source = inspect.getsource(records.attempt_record)
    [made] = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "AttemptRecord"
    ]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {each.start[0]: each.string.rpartition("# ")[2] for each in tokens if each.type == tokenize.COMMENT}

    names = [comments.get(value.end_lineno or 0) or comments[(value.end_lineno or 0) + 1] for value in made.args]
    assert not made.keywords
    assert tuple(names) == AttemptRecord.__struct_fields__[: len(names)]
