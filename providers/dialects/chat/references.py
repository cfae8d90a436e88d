"""References: the addresses that an answer cites, in whichever form an API or a vendor has them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from providers.dialects.events import few, fit
from providers.refusals import UNREADABLE

KIND = "url_citation"
BESIDE = frozenset({"citations", "search_results"})  # the choices of a chunk: xAI's, Perplexity's


def annotation(url: str, title: Any) -> dict[str, Any]:
    """Return a reference as an annotation of chat. SDKs need a place in the text: 0 stands for an unknown place."""
    named = title if isinstance(title, str) and title else url
    return {"type": KIND, KIND: {"start_index": 0, "end_index": 0, "title": named, "url": url}}


class ChunkReferences(msgspec.Struct, eq=False):  # a struct is made without a Python call
    """The references in the chunks of one answer, each once."""

    beside: dict[str, str] = {}  # titles by address, of references that are not sent yet
    _said: set[str] = set()

    def take(self, chunk: Mapping[str, Any]) -> None:
        """Note the references beside the choices of a chunk; the results of a search have titles."""
        for name in ("search_results", "citations"):
            given = chunk.get(name)
            for each in few(given, "references") if isinstance(given, list) else ():
                url = each.get("url") if isinstance(each, dict) else each
                title = each.get("title") if isinstance(each, dict) else None
                if isinstance(url, str) and url and url not in self._said:
                    self.beside.setdefault(url, title if isinstance(title, str) else "")

    def annotations_in(self, delta: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the annotations in a delta: the pages that they cite are not cited again."""
        given = delta.get("annotations")
        found = [each for each in few(given, "parts") if isinstance(each, dict)] if isinstance(given, list) else []
        for url, _ in map(cited, found):
            self._said.add(url)
            self.beside.pop(url, None)
        return found

    def rest(self) -> list[dict[str, Any]]:
        """Return the references beside the choices that no annotation has; once."""
        left, self.beside = self.beside, {}
        self._said.update(left)
        return [annotation(url, title) for url, title in left.items()]


def cited(annotation_: Mapping[str, Any]) -> tuple[str, str]:
    """Return the address and the title of the page that an annotation cites; empty: the annotation has no address."""
    inner = annotation_.get(KIND)
    inner = inner if isinstance(inner, dict) else annotation_
    url, title = inner.get("url"), inner.get("title")
    return (url if isinstance(url, str) else ""), (title if isinstance(title, str) else "")


def cites_pages(annotations: msgspec.Raw) -> bool:
    """Whether an earlier answer's annotations are only references: a model needs nothing of what references say."""
    try:
        given = _lists.decode(annotations)
    except UNREADABLE:
        return False
    return all(cited(each)[0] for each in given)


_lists = msgspec.json.Decoder(list[dict[str, Any]])


# Anthropic's citations: of what Anthropic has found, and of results that the client has given. Citations of documents
# have no address.


def of_citation(citation: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a citation of Messages as annotations."""
    url = citation.get("url") or citation.get("source")
    return [annotation(url, citation.get("title"))] if isinstance(url, str) and url else []


def to_citation(annotation_: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return an annotation as a citation of Messages, without Anthropic's own index; None: it has no address."""
    if annotation_.get("type") in _LOCATIONS:
        return dict(annotation_)
    url, title = cited(annotation_)
    if not url:
        return None
    kind = "web_search_result_location"
    return {"type": kind, "url": url, "title": title or url, "cited_text": "", "encrypted_index": ""}


def of_converse(citation: Any) -> list[dict[str, Any]]:
    """Return a citation of Converse as annotations: of a page, as of Nova's search; of a document as in Messages."""
    match citation:
        case {"location": {"web": {"url": str(url)}}} if url:
            return [annotation(url, citation.get("title"))]
        case {"location": dict(location)}:
            for name, (kind, begin, end) in IN_DOCUMENTS.items():
                if isinstance(place := location.get(name), dict):
                    pieces = fit(citation.get("sourceContent"), list[_Piece]) or ()
                    where = {begin: place.get("start", 0), end: place.get("end", 0)}
                    of = {"document_index": place.get("documentIndex", 0), "document_title": citation.get("title")}
                    told = "".join(piece.text for piece in few(pieces, "pieces of what is cited"))
                    return [{"type": kind, "cited_text": told, **of, **where, "file_id": None}]
    return []


class _Piece(msgspec.Struct):
    text: str = ""


IN_DOCUMENTS: Mapping[str, tuple[str, str, str]] = {  # by Converse's word for a place, Messages' words
    "documentChar": ("char_location", "start_char_index", "end_char_index"),
    "documentPage": ("page_location", "start_page_number", "end_page_number"),
    "documentChunk": ("content_block_location", "start_block_index", "end_block_index"),
}
_LOCATIONS = frozenset(kind for kind, _, _ in IN_DOCUMENTS.values())


# Google's grounding: the pages that were found, and citations of what was learnt.


GROUNDED = frozenset({"groundingMetadata", "citationMetadata"})  # a candidate with one of these cites pages


def of_grounding(candidate: Mapping[str, Any], said: set[str]) -> list[dict[str, Any]]:
    """Return the annotations of a candidate's grounding whose address is not in ``said``; add the address there."""
    found: list[dict[str, Any]] = []
    chunks = _list_in(candidate.get("groundingMetadata"), "groundingChunks")
    pages = [page for each in chunks for page in each.values() if isinstance(page, dict)]  # ``web``, ``maps``, …
    metadata = candidate.get("citationMetadata")
    for page in (*pages, *_list_in(metadata, "citationSources"), *_list_in(metadata, "citations")):
        url = page.get("uri")
        if isinstance(url, str) and url and url not in said:
            said.add(url)
            found.append(annotation(url, page.get("title")))
    return found


def _list_in(holder: Any, name: str) -> Sequence[dict[str, Any]]:
    given = holder.get(name) if isinstance(holder, dict) else None
    return [each for each in few(given, "references") if isinstance(each, dict)] if isinstance(given, list) else ()


def to_grounding(annotations: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return annotations as a candidate's ``groundingMetadata``; an empty object if no annotation has an address."""
    pages = dict(each for each in map(cited, annotations) if each[0])
    chunks = [{"web": {"uri": url, "title": title or url}} for url, title in pages.items()]
    return {"groundingMetadata": {"groundingChunks": chunks}} if chunks else {}
