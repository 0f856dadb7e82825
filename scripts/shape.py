#!/usr/bin/env python3
"""The shape of the product's code in figures, to be compared before and after a change.

    scripts/shape.py [FOLDER] [--names]     FOLDER: another checkout

The product is every tracked Python file of the four packages without migrations. Names are judged
by the rules of CONTRIBUTING.md: a local or an argument is a noun, not a participle or an adverb.
Python 3.11 or later, the standard library only.
"""

from __future__ import annotations

import argparse
import ast
import io
import statistics
import subprocess
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("msgplatform", "notify", "gateway", "crmsync")
# Irregular participles and adverbs; regular participles are told by their ending.
_WORDS = """
    again ago alike alone apart aside asked away back before begun behind beside beyond borne
    bought bound broken brought built caught chosen come done drawn driven due else elsewhere
    fallen far felt forgotten found given gone grown heard held here hidden hit kept known laid
    late later least left lent let lost made mean meant met mine more most now once ours over paid
    put read ready risen run said seen sent served set shown shut sold soon spent split spoken
    stood struck sworn taken taught theirs then there thought told took torn twice understood up
    wanted within without won worn written yet yours
"""
# Words that end like a participle and are nouns, verbs or terms of the trade.
_NOUNS = """
    bed deed feed need seed speed thread breed embed shed embedded unread
    before now run set mean read hit put split more due ready late
"""
WORDS, NOUNS = frozenset(_WORDS.split()), frozenset(_NOUNS.split())
WINDOW = 8  # lines that stand twice are a duplicate from this length on


def files(root: Path) -> Iterator[Path]:
    listing = subprocess.run(  # noqa: S603 - a command line of its own
        ["git", "ls-files", *PACKAGES],  # noqa: S607
        cwd=root, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in listing.stdout.splitlines():
        if name.endswith(".py") and "/migrations/" not in name and (root / name).exists():
            yield root / name


def is_participle(name: str) -> bool:
    """True if the name is only a participle or an adverb: `found`, `wanted`; not `due_ids`."""
    name = name.strip("_")
    if name in NOUNS or "_" in name:
        return False
    return name in WORDS or (len(name) > 4 and name.endswith("ed"))


def named(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every local and argument once for each function that binds it, with its line."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        bound: dict[str, int] = {}
        for node in own_nodes(function):
            if isinstance(node, ast.arg):
                bound.setdefault(node.arg, node.lineno)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                bound.setdefault(node.id, node.lineno)
        yield from bound.items()


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function without those of the functions in it."""
    for child in ast.iter_child_nodes(function):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        yield child
        yield from own_nodes(child)


def comment_lines(source: str) -> int:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return len({token.start[0] for token in tokens if token.type == tokenize.COMMENT})


def import_lines(tree: ast.Module) -> int:
    return sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    )


def duplicate_lines(sources: dict[Path, str]) -> int:
    """Lines of windows of WINDOW lines that stand elsewhere too; imports and blank lines aside."""
    places: defaultdict[tuple[str, ...], list[tuple[Path, int]]] = defaultdict(list)
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--names", action="store_true", help="list each name against the rules")
    options = parser.parse_args()
    sources = {path: path.read_text() for path in files(options.folder)}
    trees = {path: ast.parse(source) for path, source in sources.items()}
    lines = sum(source.count("\n") for source in sources.values())
    modules = [path for path in sources if path.name != "__init__.py"]
    functions = [
        node
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    lengths = [(node.end_lineno or node.lineno) - node.lineno + 1 for node in functions]
    private = sum(node.name.startswith("_") and not node.name.endswith("__") for node in functions)
    names = [
        (path, line, name)
        for path, tree in trees.items()
        for name, line in named(tree)
        if is_participle(name)
    ]
    constants = {
        node.id
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Name)
        and node.id.lstrip("_").startswith(("MOST", "LEAST", "LONGEST", "SHORTEST"))
    }
    deciles = statistics.quantiles(lengths, n=10)
    rows: list[tuple[str, str]] = [
        ("lines", f"{lines:,}"),
        ("modules without __init__", f"{len(modules):,}"),
        ("imports, share of lines", f"{sum(map(import_lines, trees.values())) / lines:.1%}"),
        ("comments, share of lines", f"{sum(map(comment_lines, sources.values())) / lines:.1%}"),
        ("functions", f"{len(functions):,}"),
        ("function, lines, median", f"{statistics.median(lengths):.0f}"),
        ("function, lines, p90", f"{deciles[8]:.0f}"),
        ("function, lines, max", f"{max(lengths)}"),
        ("private functions", f"{private / len(functions):.1%}"),
        ("participles and adverbs as names", f"{len(names):,}"),
        ("MOST_, LEAST_, LONGEST_ constants", f"{len(constants)}"),
        ("test_*.py in the product", f"{sum(path.name.startswith('test_') for path in sources)}"),
        ("duplicate lines", f"{duplicate_lines(sources):,}"),
    ]
    for title, value in rows:
        print(f"{title:36}{value:>10}")
    common = Counter(name for _, _, name in names).most_common(12)
    print("most common:", ", ".join(f"{name} {count}" for name, count in common))
    if options.names:
        for path, line, name in sorted(names):
            print(f"{path.relative_to(options.folder)}:{line}: {name}")


if __name__ == "__main__":
    main()
