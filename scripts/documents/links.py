"""Finds the links of pages, and turns those that leave `docs/` into names of files, for the site.

The site has the pages of `docs/`, and nothing of the sources that they link to: a reader finds those in a checkout, by
the name that stands in place of the link. `mkdocs.yml` names this module as a hook. Pure.
"""

import posixpath
import re
from typing import NamedTuple

__all__ = ["Link", "anchors", "links", "on_page_markdown", "slug", "without_sources"]

LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,6} (.+?)\s*$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


class Link(NamedTuple):
    """A relative link of a page: the path as the page has it, empty for the page itself, and the anchor, or None."""

    path: str
    anchor: str | None


def slug(heading: str) -> str:
    """Return the anchor of a heading, as forges make it: lower case, without punctuation, a hyphen for each space."""
    text = LINK.sub(lambda found: found["text"], heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def anchors(text: str) -> set[str]:
    """Return the anchors of a page. The second heading of the same words has `_1`, or `-1` on a forge: use neither."""
    return {slug(heading) for heading in HEADING.findall(FENCED.sub("", text))}


def links(text: str) -> list[Link]:
    """Return the relative links of a page, those in code left out."""
    found = []
    for one in LINK.finditer(CODE.sub("", text)):
        target = one["target"]
        if not re.match(r"[a-z]+:", target):
            path, mark, anchor = target.partition("#")
            found.append(Link(path, anchor if mark else None))
    return found


def without_sources(text: str, page: str) -> str:
    """Return a page with the name of a file in place of each link to something that is no file below `docs/`.

    `page` is its path below `docs/`.
    """

    def name(found: re.Match[str]) -> str:
        target = found["target"].partition("#")[0]
        if not target or re.match(r"[a-z]+:", target):
            return found[0]
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
        if path.startswith("docs/") and "." in posixpath.basename(path):
            return found[0]
        text = found["text"]
        return f"`{path}`" if path.endswith(text.strip("`").rstrip("/")) else f"{text} (`{path}`)"

    return LINK.sub(name, text)


def on_page_markdown(markdown: str, /, *, page: object, **_: object) -> str:
    """Do that for mkdocs, which calls hooks by this name."""
    return without_sources(markdown, page.file.src_uri)  # type: ignore[attr-defined]  # mkdocs need not be installed
