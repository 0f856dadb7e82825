"""Do pages fit a telephone and a desk, by day and by night?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Page, Request, expect

TELEPHONE, DESK = 390, 1300  # px
# Cells of a list whose text is not seen whole.
CUT = """[...document.querySelectorAll("#result_list .data-row > *")].filter(cell =>
    cell.scrollHeight > cell.clientHeight + 1 || cell.scrollWidth > cell.clientWidth + 1
).map(cell => cell.className.split(" ")[0])"""
MEASURE = """isDark => {
    document.documentElement.classList.toggle("dark", isDark);
    return [document.documentElement.scrollWidth, %s];
}"""


@dataclass
class Walk:
    """`misfits`: "light" or "dark" → address and width → the width of a page that scrolls sideways,
    and what is cut off in it. `foreign` are addresses of others that a page asked for, `html` is
    each page as it stands when it was looked at."""

    base_url: str
    misfits: dict[str, dict[str, Any]] = field(default_factory=lambda: defaultdict(dict))
    foreign: set[str] = field(default_factory=set)
    html: dict[str, str] = field(default_factory=dict)

    def visit(self, page: Page, paths: Iterable[str], at_desk: str = "[]") -> Walk:
        """Each page is loaded on a telephone, where each cell of a list has to be seen whole, and
        widened to a desk, where the script `at_desk` lists what is cut off."""
        page.on("request", self._hear_request)
        page.emulate_media(color_scheme="dark")
        for path in paths:
            page.set_viewport_size({"width": TELEPHONE, "height": 844})
            page.goto(self.base_url + path)
            # The rows of a search come after the page.
            page.wait_for_load_state("networkidle" if "/console/search" in path else "load")
            expect(page.locator("#content, #content-main, .console").first).to_be_visible()
            assert page.evaluate("document.documentElement.classList.contains('dark')")
            self.html[path] = page.content()
            self._measure(page, path, TELEPHONE, CUT)
            page.set_viewport_size({"width": DESK, "height": 844})
            self._measure(page, path, DESK, at_desk)
        page.remove_listener("request", self._hear_request)
        return self

    def _measure(self, page: Page, path: str, width: int, cut_off: str) -> None:
        for theme in ("dark", "light"):
            wide, cut = page.evaluate(MEASURE % cut_off, theme == "dark")
            if wide > width or cut:
                self.misfits[theme][f"{path} at {width}"] = wide, cut

    def _hear_request(self, request: Request) -> None:
        if not request.url.startswith((self.base_url, "data:", "blob:")):
            self.foreign.add(request.url)
