"""People who use the database while dispatchers work: a process that reads pages of timelines.

Called with its number, a number of readers, seconds of thinking between two pages, and a file, into
which it writes a line for each page: when it was asked for (unix seconds), and the seconds it took.
Each page is followed by a small update, as a visit is. Goes on until it is killed.
"""

import random
import sys
import time
from pathlib import Path

import django


def main(number: int, readers: int, think: float, file: str) -> None:
    from django.db import connection

    from notify.feed import timeline

    chance = random.Random(number)
    with Path(file).open("w", buffering=1) as lines:
        while True:
            uid = f"r{chance.randrange(readers)}"
            begun, moment = time.perf_counter(), time.time()
            timeline.read(1, uid, visit=False)
            with connection.cursor() as cursor:
                cursor.execute(
                    "UPDATE feed_user SET read_id = read_id + 1 WHERE biz_id = 1 AND uid = %s",
                    [uid],
                )
            lines.write(f"{moment:.3f} {time.perf_counter() - begun:.6f}\n")
            time.sleep(think * chance.uniform(0.5, 1.5))


if __name__ == "__main__":
    django.setup()
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4])
