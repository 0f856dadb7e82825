"""Links between documents lead to a file and a heading; each page says whom it is for."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")])
_CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


def anchors(text: str) -> set[str]:
    """The anchors that a forge makes of headings: lower case, no punctuation, - for blanks."""
    found: set[str] = set()
    for heading in _HEADING.findall(_CODE.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")
        number = sum(other == slug or re.fullmatch(rf"{re.escape(slug)}-\d+", other) is not None
                     for other in found)  # fmt: skip
        found.add(f"{slug}-{number}" if number else slug)
    return found


def broken(document: Path, text: str) -> list[str]:
    wrong = []
    for target in _LINK.findall(_CODE.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        if not file.is_relative_to(ROOT) or not file.exists():
            wrong.append(f"{document.name}: {target}: there is no such file")
        elif anchor and anchor not in anchors(file.read_text(encoding="utf-8")):
            wrong.append(f"{document.name}: {target}: there is no such heading")
    return wrong


def test_every_link_leads_somewhere() -> None:
    texts = {document: document.read_text(encoding="utf-8") for document in DOCUMENTS}
    assert sum(len(_LINK.findall(text)) for text in texts.values()) > 50
    assert [line for document, text in texts.items() for line in broken(document, text)] == []


def test_a_broken_link_is_found() -> None:
    here = ROOT / "docs" / "index.md"
    assert broken(here, "[a](nowhere.md) [b](sms.md#nothing) [c](sms.md#states)") == [
        "index.md: nowhere.md: there is no such file",
        "index.md: sms.md#nothing: there is no such heading",
    ]


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    linked = {target.partition("#")[0] for target in _LINK.findall(index)}
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert pages - linked == set()


def test_every_page_says_in_its_first_lines_whom_it_is_for() -> None:
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md")]
    first = [text.split("\n## ")[0] for text in pages if "Written by `" not in text[:300]]
    assert len(first) > 15
    wanted = re.compile(r"\bfor (everybody|who|engineers|developers)", re.IGNORECASE)
    assert [text for text in first if not wanted.search(text)] == []


def test_the_picture_of_the_readme_is_small_and_without_scripts() -> None:
    """`scripts/cast.py` draws it."""
    picture = ROOT / "docs" / "images" / "demo.svg"
    assert f"({picture.relative_to(ROOT)})" in (ROOT / "README.md").read_text(encoding="utf-8")
    text = picture.read_text(encoding="utf-8")
    assert len(text) <= 60_000
    assert "<script" not in text
    assert "flow          accepted" in text
