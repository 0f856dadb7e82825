"""A hook of mkdocs: pages link to files of the repository that lie beside docs/. On the site those
files are below repository/; a link to a folder becomes its text."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
# [text](path#anchor); of an image, too. No address of the web.
_LINK = re.compile(r"(?<!`)(\[(?:[^\[\]]|\[[^\]]*\])*\]\()(?![a-z]+:|#|/)([^)\s#]+)")
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
    return _LINK.sub(on_site, markdown)


def _site_uri(target: str) -> str:
    return target.removeprefix("docs/") if target.startswith("docs/") else f"repository/{target}"


def _file(config: Any, name: str) -> File:
    return File.generated(config, _site_uri(name), abs_src_path=str(ROOT / name))
