"""A soak in a process of its own: `python -m bench.soak --hours 2`; `manage.py bench soak` starts
it. The result is one JSON object on standard output; progress goes to standard error."""

import argparse
import json
import os
import sys
from functools import partial
from pathlib import Path

from bench.harness import migrated, processes
from bench.harness.ground import Ground


def main() -> None:
    parser = argparse.ArgumentParser(description="Keep all flows under load for hours.")
    parser.add_argument("--hours", type=float, required=True)
    parser.add_argument("--rates", default="", help="notify=50,sms=10,crmsync=5,feed=5")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between samples")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--restart", default="", help="only these programs: web,run_sender")
    parser.add_argument("--lose-one", action="store_true")
    options = parser.parse_args()
    seconds = options.hours * 3600
    rates = {name: float(rate) for name, rate in _pairs(options.rates)}
    # Short, so that each sample has a window and each quarter has some samples.
    every = min(options.every, max(1.0, seconds / 24))
    with Ground("mariadb") as ground:
        _set_up(ground, seconds)
        from bench.soak.document import draw
        from bench.soak.soak import Options, Soak

        restarted = [label for label in options.restart.split(",") if label]
        soak = Soak(
            ground, Options(seconds, rates, every, options.folder, restarted, options.lose_one)
        )
        result = soak.run()
        draw(result, soak.samples, options.folder / "soak.svg")
    (options.folder / "result.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
    json.dump(result, sys.stdout)


def _set_up(ground: Ground, seconds: float) -> None:
    """Make the environment of all programs, and the database."""
    os.environ.clear()
    os.environ.update(ground.environment, LOG_LEVEL="WARNING")
    import django
    from django.core.management import call_command

    django.setup()
    from bench.soak.stage import settings

    ground.environment |= {**settings(seconds), "LOG_LEVEL": "WARNING"}
    migrate = partial(call_command, "migrate", verbosity=0, interactive=False)
    migrated.fill(ground.environment["DATABASE_URL"], migrate, "everything")


def _pairs(text: str) -> list[tuple[str, str]]:
    return [
        (name, rate) for name, _, rate in (part.partition("=") for part in text.split(",") if part)
    ]


if __name__ == "__main__":
    processes.exit_after(main)
