"""`python -m bench.storm PEER`: the strikes over ours and over a peer, and what both accepted,
lost and delivered twice. `make storm PEER=bullmq` calls it."""

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from bench.harness import migrated, processes
from bench.storm.ground import StormGround

PEERS = ("bullmq", "dlt", "kannel", "stream-framework")


def main() -> None:
    parser = argparse.ArgumentParser(description="The same strikes over ours and over a peer.")
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--rate", type=float, default=100.0, help="messages a second")
    parser.add_argument("--seconds", type=float, default=60.0, help="of strikes, at least")
    parser.add_argument("--only", choices=["ours", "peer"], help="leave the other one out")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = []
    # Each side has servers of its own: what one of them left behind does not concern the other.
    for number, which in enumerate(("ours", "peer")):
        if options.only in (None, which):
            results.append(_in_child(number, options))
    print(json.dumps(results) if options.json else table(results))


def _in_child(number: int, options: argparse.Namespace) -> dict[str, Any]:
    """The result of a side in a process of its own, which makes its environment before Django
    reads it. Raises BenchFailed."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        processes.exit_after(partial(_measure, number, options, writer))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        text = stream.read()
    _, status = os.waitpid(child, 0)
    if status:
        raise processes.BenchFailed(f"{options.peer}: a side has no result; see above")
    result: dict[str, Any] = json.loads(text)
    return result


def _measure(number: int, options: argparse.Namespace, writer: int) -> None:
    with StormGround() as ground:
        os.environ.clear()
        os.environ.update(ground.environment, LOG_LEVEL="WARNING")
        import django
        from django.core.management import call_command

        django.setup()
        from bench.storm import storm
        from bench.storm.peers import PEERS

        migrate = partial(call_command, "migrate", verbosity=0, interactive=False)
        migrated.fill(ground.environment["DATABASE_URL"], migrate, "everything")
        kind = PEERS[options.peer][number]
        kind.install()
        result = storm.run(kind(ground, options.rate, options.seconds), options.seconds)
    with os.fdopen(writer, "w") as stream:
        json.dump(result, stream)


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """The results as Markdown."""
    lines = ["| side | accepted | lost | twice | strikes |", "|---|---:|---:|---:|---|"]
    for each in results:
        strikes = ", ".join(f"{times} × {name}" for name, times in each["strikes"].items())
        counts = " | ".join(f"{each[name]:,}" for name in ("accepted", "lost", "twice"))
        lines.append(f"| {each['side']} | {counts} | {strikes} |")
    for each in results:
        lines += ["", f"Settings of {each['side']}:", ""]
        lines += [f"- {setting}: {reason}" for setting, reason in each["settings"]]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
