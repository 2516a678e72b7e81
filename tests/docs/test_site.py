"""The site has every page once, and no link of a page leads nowhere. `scripts/documents/site` builds it, by mkdocs."""

import posixpath
import re
from pathlib import Path

import pytest
from documents.links import Link, anchors, links, slug, without_sources

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
READ_BY_ALL = ("README.md", "CONTRIBUTING.md", *(f"docs/{page}" for page in PAGES))


def test_every_page_is_in_the_navigation_once() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    assert sorted(re.findall(r"([\w./-]+\.md)$", nav, re.MULTILINE)) == PAGES


def test_the_navigation_has_four_groups() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    assert re.findall(r"^  - (\w+):$", nav, re.MULTILINE) == ["Start", "Use", "Operate", "Understand"]


@pytest.mark.parametrize("page", READ_BY_ALL)
def test_every_link_and_anchor_of_a_page_leads_somewhere(page: str) -> None:
    here = ROOT / page
    broken = []
    for link in links(here.read_text()):
        there = (here.parent / link.path).resolve() if link.path else here
        if not there.exists() or (link.anchor is not None and link.anchor not in anchors(there.read_text())):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("page", READ_BY_ALL)
def test_headings_of_a_page_have_anchors_of_their_own(page: str) -> None:
    """A second one of the same words could be linked to in one way on the site, and in another on a forge."""
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    found = [slug(heading) for heading in re.findall(r"^#{1,6} (.+?)\s*$", text, re.MULTILINE)]
    linked = {link.anchor for link in links(text) if not link.path}
    assert not {one for one in linked if found.count(str(one)) > 1}


@pytest.mark.parametrize("page", PAGES)
def test_links_of_the_site_stay_in_it(page: str) -> None:
    for link in links(without_sources((DOCS / page).read_text(), page)):
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), link.path)) if link.path else page
        assert (DOCS / path).is_file()


def test_a_link_into_the_sources_becomes_the_name_of_a_file() -> None:
    text = "[the core](../raftlog/raft/README.md), [`raftlog/raft`](../raftlog/raft/), [here](raft.md#x), [x](#y)"
    wanted = "the core (`raftlog/raft/README.md`), `raftlog/raft`, [here](raft.md#x), [x](#y)"
    assert without_sources(text, "architecture.md") == wanted
    assert without_sources("[samples](../all)", "compare/cost/README.md") == "samples (`docs/compare/all`)"
    assert without_sources("[site](https://example.org)", "a.md") == "[site](https://example.org)"


def test_links_in_code_are_no_links() -> None:
    text = "`[a](b)` [c](d.md#e)\n```\n[f](g)\n```\n"
    assert links(text) == [Link("d.md", "e")]


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [("When a disk fails or is full", "when-a-disk-fails-or-is-full"), ("`a_b`, [c](d)!", "a_b-c"), ("A - B", "a---b")],
)
def test_anchors_are_those_of_forges(heading: str, anchor: str) -> None:
    assert slug(heading) == anchor
    assert anchors(f"# {heading}\n```\n# no heading\n```\n") == {anchor}
