"""Hooks of mkdocs, for pages that are written for a forge.

Pages link to files of the repository that lie beside docs/: on the site those files are below
repository/, and a link to a folder becomes its text. Lists of CommonMark, indented by the width of
their markers, become lists of Python-Markdown, indented by four.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
# [text](path#anchor); of an image, too. No address of the web.
_LINK = re.compile(r"(?<!`)(\[(?:[^\[\]]|\[[^\]]*\])*\]\()(?![a-z]+:|#|/)([^)\s#]+)")
_ITEM = re.compile(r"(?:[-*+]|\d+\.) +")
_FOLDER = re.compile(r"\[([^\]]*)\]\(([^)\s#:]+/)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the files that pages link to, and those that these pages link to."""
    waiting = [
        (f"docs/{file.src_uri}", file.content_string) for file in files.documentation_pages()
    ]
    while waiting:
        source, text = waiting.pop()
        for _, link in _LINK.findall(text):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
            path = ROOT / target
            uri = _site_uri(target)
            if path.is_file() and files.get_file_from_path(uri) is None:
                files.append(_file(config, target))
                if path.suffix == ".md":
                    waiting.append((target, path.read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """Links as they are on the site."""
    uri = page.file.src_uri
    source = uri.removeprefix("repository/") if uri.startswith("repository/") else f"docs/{uri}"

    def on_site(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[2]))
        return match[1] + posixpath.relpath(_site_uri(target), posixpath.dirname(uri) or ".")

    def is_folder(link: str) -> bool:
        return (ROOT / posixpath.dirname(source) / link).is_dir()

    markdown = _FOLDER.sub(lambda match: match[1] if is_folder(match[2]) else match[0], markdown)
    return _indented(_LINK.sub(on_site, markdown))


def _indented(markdown: str) -> str:
    lines: list[str] = []
    columns: list[int] = []  # where the text of each open item begins
    is_code = False
    is_paragraph = True  # the line before belongs to no first paragraph of an item
    for line in markdown.splitlines():
        text = line.lstrip(" ")
        column = len(line) - len(text)
        if not is_code and text:
            while columns and column < columns[-1]:
                columns.pop()
        margin = column - (columns[-1] if columns else 0)
        item = None if is_code else _ITEM.match(text)
        if item and is_paragraph and lines and lines[-1]:
            lines.append("")
        lines.append(" " * (4 * len(columns) + max(margin, 0)) + text if text else "")
        if text.startswith("```"):
            is_code = not is_code
        if item:
            columns.append(column + len(item[0]))
            is_paragraph = False
        elif not columns or not text or text.startswith("```"):
            is_paragraph = True
    return "\n".join(lines) + "\n"


def _site_uri(target: str) -> str:
    return target.removeprefix("docs/") if target.startswith("docs/") else f"repository/{target}"


def _file(config: Any, name: str) -> File:
    return File.generated(config, _site_uri(name), abs_src_path=str(ROOT / name))
