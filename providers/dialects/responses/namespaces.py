"""Tools in namespaces. Chat completions have none: there the namespace becomes a part of the tool's name."""

from collections.abc import Mapping
from typing import Any

import msgspec

from providers.dialects.responses.fields import Fields, Losses, objects_of
from providers.dialects.tool_names import flat_name
from providers.dialects.wording import decoded, raw_json


def opened(raw: msgspec.Raw | None, losses: Losses) -> list[Fields]:
    """Return the tools of a request, also those inside namespaces, with their names in chat.

    The description of a namespace is put before that of its first tool.

    Raises:
        Malformed: a namespace lacks its name or its tools.

    """
    said: list[Fields] = []
    for tool in objects_of(raw, "tools"):
        if not tool.holds("type", b'"namespace"'):
            said.append(tool)
            continue
        namespace = decoded(tool.need("name"), str, tool.named("name"))
        about = tool.take("description", str)
        for inner in objects_of(tool.need("tools"), tool.named("tools")):
            name = decoded(inner.need("name"), str, inner.named("name"))
            inner.put("name", raw_json(flat_name(namespace, name)))
            if about:
                own = inner.take("description", str)
                told = f"{own or name}\n\nAll {namespace} tools: {about}"
                inner.put("description", raw_json(told))
                about = None
            said.append(inner)
        tool.pass_over("type")
        tool.lose_rest(losses, "chat completions have no such field in a tool")
    return said


def names_of(raw: msgspec.Raw | None) -> Mapping[str, tuple[str, str]]:
    """Return the namespace and the name of each tool that is in a namespace, by its name in chat."""
    names: dict[str, tuple[str, str]] = {}
    for tool in decoded(raw, list[dict[str, Any]], "tools") or ():
        if tool.get("type") == "namespace":
            namespace = str(tool.get("name"))
            own = [str(inner.get("name")) for inner in tool.get("tools") or ()]
            names |= {flat_name(namespace, name): (namespace, name) for name in own}
    return names


def called_name(item: Fields) -> msgspec.Raw:
    """Take the name of the tool from an earlier call, as it is in chat.

    Raises:
        Malformed: there is none.

    """
    name = item.need("name")
    namespace = item.take("namespace", str)
    if not namespace:
        return name
    return raw_json(flat_name(namespace, decoded(name, str, item.named("name"))))
