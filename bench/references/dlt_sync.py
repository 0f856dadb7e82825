"""The hive into another database with dlt: incremental by UpdateTime, merged by primary key.

    python -m bench.references.dlt_sync --backend pyarrow --source URL --target URL …

The pipeline runs once each time the number in `--asked` goes up, in the same warm process; the
number in `--progress` is how many runs have ended.

What makes it fast: the C client; 10,000 rows a chunk and a file, so that files are loaded side by
side; no compression of files that are read at once; rows of the newest time are read again and
merged, instead of remembered; the primary key, without which a merge compares each row with each.
dlt's strategy `upsert` does not exist for MySQL and MariaDB, so it deletes and inserts; with
`deduplicated` it does not look for keys that come twice.
"""

import os
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from bench.harness.programs import worker

TABLE = "lead"
COLUMNS = [
    "id", "appkey", "uid", "name", "phone", "extra", "UpdateTime", "IsDelete", "version",
]  # fmt: skip
ROWS = 10_000
SETTINGS = {
    "RUNTIME__DLTHUB_TELEMETRY": "false",
    "RUNTIME__LOG_LEVEL": "WARNING",
    "DATA_WRITER__BUFFER_MAX_ITEMS": str(ROWS),
    "DATA_WRITER__FILE_MAX_ITEMS": str(ROWS),
    "DATA_WRITER__DISABLE_COMPRESSION": "true",
    "NORMALIZE__DATA_WRITER__DISABLE_COMPRESSION": "true",
}


def main() -> None:
    parser = worker.options("Copy leads with dlt.")
    parser.add_argument("--asked", type=worker.progress, required=True)
    parser.add_argument("--backend", choices=["sqlalchemy", "pyarrow"], required=True)
    parser.add_argument("--source", required=True, help="SQLAlchemy's URL of the hive")
    parser.add_argument("--target", required=True, help="and of the database that is written")
    parser.add_argument("--dataset", required=True, help="the name of that database")
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--lag", type=float, help="seconds below the newest time, read again")
    options = parser.parse_args()
    stop = worker.Stop()
    os.environ.update(SETTINGS)
    copy = _pipeline(options)
    while not stop:
        if options.progress.count < options.asked.count:
            copy()
            options.progress.add(1)
        time.sleep(0.002)


def _pipeline(options: Namespace) -> Callable[[], object]:
    import dlt
    from dlt.destinations import sqlalchemy
    from dlt.sources.sql_database import sql_table

    pipeline = dlt.pipeline(
        "leads",
        pipelines_dir=str(options.state),
        destination=sqlalchemy(options.target, create_primary_keys=True),
        dataset_name=options.dataset,
    )

    def copy() -> object:
        leads = sql_table(
            credentials=options.source,
            table=TABLE,
            included_columns=COLUMNS,
            backend=options.backend,
            chunk_size=ROWS,
            primary_key="id",
            incremental=dlt.sources.incremental("UpdateTime", primary_key=(), lag=options.lag),
            write_disposition={
                "disposition": "merge", "strategy": "delete-insert", "deduplicated": True,
            },
        )  # fmt: skip
        return pipeline.run(leads)

    return copy


if __name__ == "__main__":
    main()
