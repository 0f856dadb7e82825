#!/usr/bin/env python3
"""The shape of the code in figures, to be compared before and after a change.

    scripts/shape.py [FOLDER]            the figures; FOLDER: another checkout
    scripts/shape.py --check [FOLDER]    fail if a figure is above its ceiling (shape_ceilings.txt)
    scripts/shape.py --lower [FOLDER]    write the figures that are lower as ceilings
    scripts/shape.py --places WORDS      path and line of all that the figures with WORDS count

The product is every tracked Python file of the four packages without migrations. Names are judged
by the rules of CONTRIBUTING.md. Python 3.11 or later, the standard library only.
"""

import argparse
import statistics
import sys
from collections import Counter
from pathlib import Path

from shape.ceilings import WrongFile, compare, lower
from shape.figures import Figure, figures, read_product
from shape.modules import Module
from shape.names import is_participle
from shape.sources import comment_lines, duplicate_lines

_LIMITS = ("MOST", "LEAST", "LONGEST", "SHORTEST")


def describe(modules: list[Module]) -> list[tuple[str, str]]:
    """Figures without a ceiling."""
    lines = sum(module.lines for module in modules)
    lengths = [length for module in modules for length in module.function_lengths]
    names = {name for module in modules for name in module.names}
    limits = [name for name in names if name.lstrip("_").startswith(_LIMITS)]
    file_names = [Path(module.path).name for module in modules]
    comments = sum(comment_lines(module.source) for module in modules)
    duplicates = duplicate_lines({module.path: module.source for module in modules})
    return [
        ("lines", f"{lines:,}"),
        ("modules without __init__", f"{len(modules) - file_names.count('__init__.py'):,}"),
        ("comments, % of lines", f"{100 * comments / lines:.1f}"),
        ("functions", f"{len(lengths):,}"),
        ("function, lines, median", f"{statistics.median(lengths):.0f}"),
        ("function, lines, p90", f"{statistics.quantiles(lengths, n=10)[8]:.0f}"),
        ("function, lines, max", f"{max(lengths)}"),
        ("MOST_, LEAST_, LONGEST_ constants", f"{len(limits)}"),
        ("test_*.py in the product", f"{sum(name.startswith('test_') for name in file_names)}"),
        ("duplicate lines", f"{duplicates:,}"),
    ]


def show(modules: list[Module], gated: list[Figure]) -> None:
    rows = [*describe(modules), *((figure.name, f"{figure.value:,}") for figure in gated)]
    for title, value in rows:
        print(f"{title:46}{value:>10}")
    names = [binding.name for module in modules for binding in module.bindings]
    common = Counter(name for name in names if is_participle(name)).most_common(12)
    print("most common:", ", ".join(f"{name} {count}" for name, count in common))


def check(root: Path, gated: list[Figure]) -> int:
    complaints, remarks = compare(root, gated)
    for remark in remarks:
        print(remark)
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return bool(complaints)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parents[1])
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--check", action="store_true")
    action.add_argument("--lower", action="store_true")
    action.add_argument("--places", metavar="WORDS")
    options = parser.parse_args()
    modules = read_product(options.folder)
    gated = figures(options.folder, modules)
    try:
        if options.check:
            return check(options.folder, gated)
        if options.lower:
            print("\n".join(lower(options.folder, gated)) or "no figure is below its ceiling")
            return 0
    except (WrongFile, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return 1
    if options.places is None:
        show(modules, gated)
        return 0
    for figure in gated:
        if options.places in figure.name:
            for place in sorted(figure.places):
                print(f"{place} ({figure.name})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
