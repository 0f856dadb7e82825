"""Reads timelines of readers who come again and again.

    python -m bench.feed.reader --progress FILE --biz 1 --users 500 --readers 100 --what page

It reads those of `--readers` of the `--users`, each as often as the others; an answer must have
`--expected` posts. On SIGTERM it prints how long answers took.
"""

import json
import random
import time
from collections.abc import Callable

from bench.harness.programs import quantiles, worker


def main() -> None:
    parser = worker.options("Read timelines.")
    for name in ("biz", "users", "readers", "expected"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--what", choices=("page", "unread"), required=True)
    options = parser.parse_args()
    stop = worker.Stop()
    worker.set_up_django()
    from notify.feed import timeline

    def page(uid: str) -> int:
        return len(timeline.read(options.biz, uid, limit=20).posts)

    def unread(uid: str) -> int:
        return timeline.count_unread(options.biz, uid).count

    ask: Callable[[str], int] = page if options.what == "page" else unread
    apart = options.users // options.readers
    times: list[float] = []
    while not stop:
        uid = f"user-{random.randrange(options.readers) * apart:08}"
        begun = time.perf_counter()
        found = ask(uid)
        times.append(time.perf_counter() - begun)
        if found != options.expected:
            raise SystemExit(f"{found} posts of {uid} instead of {options.expected}")
        options.progress.add(1)
    warm = times[len(times) // 4 :]  # the first ones fill caches
    print(json.dumps({**quantiles.report(warm), "calls": len(warm)}))


if __name__ == "__main__":
    main()
