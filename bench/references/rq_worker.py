"""RQ's SimpleWorker on the queue of deliveries, as `rq worker --worker-class` would run it.

SimpleWorker runs jobs in its own process; RQ's default Worker forks for each job and is several
times slower. Its log lines per job are turned off.
"""

import sys

import redis
from rq import SimpleWorker

from bench.references import rq_jobs


def main() -> None:
    connection = redis.Redis.from_url(sys.argv[1])
    SimpleWorker([rq_jobs.QUEUE], connection=connection).work(logging_level="WARNING")


if __name__ == "__main__":
    main()
