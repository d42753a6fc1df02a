"""What is kept of a page besides its title and its links, where the crawl asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from selectolax.lexbor import LexborHTMLParser

from weft.crawl_spec import Keeping
from weft.crawls import text
from weft.crawls.charset import as_utf8
from weft.crawls.head import Head
from weft.crawls.structured import structured_of
from weft.fetching.urls import Spelling

if TYPE_CHECKING:
    from weft.crawls.fields import FieldRules

LONGEST_DESCRIPTION = 2_000


class Kept(Protocol):
    """A page that fields are put into."""

    url: str
    title: str
    fields: dict[str, Any]
    missing: tuple[str, ...]


class Extraction:
    """Reads what a crawl keeps. Raises ``Invalid`` or ``AdapterMissing`` at once where it never could."""

    def __init__(self, keeping: Keeping, spelling: Spelling) -> None:
        self._keeping, self._spelling = keeping, spelling
        self._rules: FieldRules | None = None
        if keeping.fields:
            from weft.crawls.fields import FieldRules  # lxml costs 10 MB

            self._rules = FieldRules(keeping.fields, spelling)
        self._wants_text = keeping.text or keeping.markdown
        if self._wants_text:
            text.parsed("")
        self.wants_any = self._wants_text or keeping.language or keeping.structured or bool(keeping.fields)

    def read_html(self, page: Kept, tree: LexborHTMLParser, head: Head, utf8: bytes) -> None:
        fields, keeping = page.fields, self._keeping
        if head.description:
            fields["description"] = head.description[:LONGEST_DESCRIPTION]
        if self._wants_text:
            document = text.parsed(utf8.decode("utf-8", "replace"))
            if keeping.text:
                fields["text"] = text.main_text(document)
            if keeping.markdown:
                fields["markdown"] = text.markdown(document, self._base(page.url, head.base))
        if keeping.language:
            fields["language"] = head.language or text.language_of(fields.get("text") or _all_text(tree))
        if keeping.structured:
            fields["structured"] = structured_of(tree)
        self._read_fields(page, utf8, tree)

    def _base(self, url: str, told: str) -> str:
        """What the links of a page are relative to: its address, unless it says otherwise."""
        return next(iter(self._spelling.resolve(url, [told])), url) if told else url

    def read_other(self, page: Kept, body: bytes, content_type: bytes) -> None:
        """Of what is no HTML: JSON has fields as well."""
        page.fields["content_type"] = content_type.partition(b";")[0].strip().lower().decode("latin-1")
        if self._rules is not None and b"json" in content_type.lower():
            self._read_fields(page, as_utf8(body, content_type), None)

    def _read_fields(self, page: Kept, utf8: bytes, tree: LexborHTMLParser | None) -> None:
        if self._rules is None:
            return
        from weft.crawls.fields import Sheet

        found, page.missing = self._rules.read(Sheet(page.url, utf8, tree))
        page.fields.update(found)


def _all_text(tree: LexborHTMLParser) -> str:
    return tree.body.text(separator=" ") if tree.body is not None else ""
