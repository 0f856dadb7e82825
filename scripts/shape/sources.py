"""Comments and duplicate lines of source text."""

import io
import tokenize
from collections import defaultdict
from collections.abc import Mapping

WINDOW = 8  # lines that stand twice are a duplicate from this length on


def comment_lines(source: str) -> int:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return len({token.start[0] for token in tokens if token.type == tokenize.COMMENT})


def duplicate_lines(sources: Mapping[str, str]) -> int:
    """Lines of windows of WINDOW lines that stand elsewhere too; imports and blank lines aside.
    `sources` is text by path."""
    places: defaultdict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for path, source in sources.items():
        lines = [
            (number, line.strip())
            for number, line in enumerate(source.splitlines())
            if line.strip() and not line.startswith(("import ", "from ", "#"))
        ]
        for start in range(len(lines) - WINDOW + 1):
            window = tuple(text for _, text in lines[start : start + WINDOW])
            places[window].append((path, lines[start][0]))
    repeated = set()
    for sites in places.values():
        if len(sites) > 1:
            repeated |= {(path, line + step) for path, line in sites for step in range(WINDOW)}
    return len(repeated)
