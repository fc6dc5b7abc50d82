"""Every relative link of the documentation leads somewhere, anchors included, and every page can be reached."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, made as GitHub makes them."""
    headings = _HEADING.findall(_FENCED.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def find_dead_links(page: Path) -> list[str]:
    dead = []
    for link in _LINK.findall(_FENCED.sub("", page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        has_anchor = not anchor or (target.suffix == ".md" and target.is_file() and anchor in anchors(target))
        if not target.exists() or not has_anchor:
            dead.append(link)
    return dead


def test_there_are_pages() -> None:
    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "architecture.md"} <= {page.name for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_dead_links(page: Path) -> None:
    assert find_dead_links(page) == []


def linked_pages(page: Path) -> set[Path]:
    links = _LINK.findall(_FENCED.sub("", page.read_text()))
    targets = {(page.parent / link.partition("#")[0]).resolve() for link in links if not re.match(r"[a-z]+:", link)}
    return targets & set(PAGES)


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    to_visit = {ROOT / "README.md"}
    while to_visit:
        page = to_visit.pop()
        reached.add(page)
        to_visit |= linked_pages(page) - reached
    unreached = {page for page in set(PAGES) - reached if page.is_relative_to(ROOT / "docs")}
    assert unreached == set()


def test_dead_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A b: c\n[x](#a-b-c) [x](#d) [x](page.md) [x](page.md#d) [x](gone.md) [x](https://x.invalid)\n")
    assert find_dead_links(page) == ["#d", "page.md#d", "gone.md"]
