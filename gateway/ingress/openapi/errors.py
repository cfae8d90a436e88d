"""The errors of the API, described from the classes that are raised."""

from collections.abc import Iterable, Mapping
from typing import Any

from gateway.errors import ApiError, NoDeploymentFits
from gateway.ingress.openapi.operation import JSON, Schema, nullable, record, ref, text
from gateway.race_failures import CODES_OF_OPERATORS, ProviderMisconfigured, RejectedByProvider

# Classes whose instances have other statuses or codes than the class.
_STATUSES: Mapping[type[ApiError], tuple[int, ...]] = {RejectedByProvider: (400, 413, 422)}
_CODES: Mapping[type[ApiError], tuple[str, ...]] = {
    NoDeploymentFits: ("context_length_exceeded",),
    ProviderMisconfigured: tuple(CODES_OF_OPERATORS.values()),
}

SCHEMAS: Mapping[str, Schema] = {
    "Error": record(
        {
            "error": record(
                {
                    "message": text("What happened, and what to do."),
                    "type": nullable(text("The kind of error, as OpenAI names them.")),
                    "param": nullable(text("The field that is at fault, if it is one.")),
                    "code": nullable(text("The word to decide on.")),
                }
            )
        },
        about="An error in OpenAI's format. Where a provider says that the request is invalid, its own object is sent.",
    ),
    "MessagesError": record(
        {
            "type": text(one_of=("error",)),
            "error": record({"type": text("As Anthropic names them."), "message": text("What happened.")}),
        },
        {"request_id": nullable(text())},
        about="An error in Anthropic's format.",
    ),
}


def codes(error: type[ApiError]) -> tuple[str, ...]:
    """Return all codes that errors of a class have."""
    own = () if error.code is None else (str(error.code),)
    return tuple(dict.fromkeys((*own, *map(str, _CODES.get(error, ())))))


def responses(errors: Iterable[type[ApiError]], schema: str) -> dict[str, Any]:
    """Return the response objects of ``errors`` by status, with what each code means."""
    by_status: dict[int, list[type[ApiError]]] = {}
    for error in dict.fromkeys(errors):
        for status in _STATUSES.get(error, (error.status,)):
            by_status.setdefault(status, []).append(error)
    return {str(status): _response(by_status[status], schema) for status in sorted(by_status)}


def _response(errors: Iterable[type[ApiError]], schema: str) -> dict[str, Any]:
    meanings: dict[str, list[str]] = {}
    for error in errors:
        for code in codes(error):
            meanings.setdefault(code, []).append(_first_sentence(error))
    described = "\n".join(f"- `{code}`: {' '.join(dict.fromkeys(said))}" for code, said in meanings.items())
    return {
        "description": described,
        "content": {JSON: {"schema": ref(schema)}},
        "x-error-codes": list(meanings),
    }


def _first_sentence(error: type[ApiError]) -> str:
    said = " ".join((error.__doc__ or "").replace("``", "`").split("\n\n")[0].split())
    return f"{said.partition('. ')[0].rstrip('.')}."
