"""Values made after a JSON schema: the same for the same schema."""

from typing import Any

Json = dict[str, Any]

_PLAIN: Json = {"integer": 7, "number": 7.5, "boolean": True, "null": None}


def sample(schema: Json) -> Any:
    """Return a value that ``schema`` allows, as far as it uses what clients generate from their types."""
    return _sample(schema, schema, "answer")


def _sample(schema: Json, root: Json, name: str) -> Any:
    if (chosen := _chosen(schema, root)) is not None:
        return _sample(chosen, root, name)
    fixed = [schema[word] for word in ("const", "default") if word in schema] + schema.get("enum", [])
    if fixed:
        return fixed[0]
    kind = schema.get("type", "object")
    match kind[0] if isinstance(kind, list) else kind:
        case "string":
            return f"the {name}"
        case "array":
            return [_sample(schema.get("items", {"type": "string"}), root, name)]
        case "object":
            return {key: _sample(entry, root, key) for key, entry in schema.get("properties", {}).items()}
        case plain:
            return _PLAIN[plain]


def _chosen(schema: Json, root: Json) -> Json | None:
    """Return the schema that stands for this one: the one referred to, or the first of several."""
    if "$ref" in schema:
        found = root
        for step in str(schema["$ref"]).removeprefix("#/").split("/"):
            found = root if step == "#" else found[step]
        return found
    return next((schema[word][0] for word in ("anyOf", "oneOf", "allOf") if word in schema), None)
