"""A sample: memory, descriptors and threads of each program, both Redis, MariaDB's tables.

MariaDB's memory is counted without the pages in its buffer pool.
"""

from collections.abc import Iterable
from typing import Any

import psutil
from django.db import connection

from bench.harness.ground import Ground
from bench.harness.processes import Crew
from gateway.connections import sms_redis
from msgplatform.core.connections import work_redis

MB = 1e6
PROGRAM_COLUMNS = ("pss_mb", "fds", "threads", "cpu_s")
REDIS_COLUMNS = ("memory_mb", "keys", "clients")
TABLE_COLUMNS = ("mb", "rows", "partitions")
# Without partitions a table counts as one; sizes are those of the server's statistics.
_TABLES = (
    "SELECT t.table_name, (t.data_length + t.index_length) / 1e6, t.table_rows, "
    "(SELECT COUNT(*) FROM information_schema.partitions p WHERE p.table_schema = t.table_schema "
    "AND p.table_name = t.table_name) FROM information_schema.tables t "
    "WHERE t.table_schema = DATABASE() ORDER BY t.table_name"
)

_STATUS = (
    "SHOW GLOBAL STATUS WHERE variable_name IN "
    "('Threads_connected', 'Innodb_buffer_pool_bytes_data')"
)


def take(ground: Ground, crew: Crew) -> dict[str, Any]:
    """The sample of this moment, with a process that ended meanwhile left out."""
    trees = crew.trees() | {name: [psutil.Process(pid)] for name, pid in ground.servers().items()}
    programs = {label: _program(processes) for label, processes in trees.items()}
    mariadb = _mariadb()
    # InnoDB fills its pool, whose size is a setting, with pages of tables that grow.
    programs["mariadb"]["pss_mb"] = round(programs["mariadb"]["pss_mb"] - mariadb["pool_mb"], 2)
    return {
        "programs": programs,
        "redis": {"work": _redis(work_redis()), "sms": _redis(sms_redis())},
        "mariadb": mariadb,
    }


def _program(processes: Iterable[psutil.Process]) -> dict[str, float]:
    sums = dict.fromkeys(PROGRAM_COLUMNS, 0.0)
    for process in processes:
        try:
            times = process.cpu_times()
            values = (
                process.memory_full_info().pss / MB, process.num_fds(), process.num_threads(),
                times.user + times.system,
            )  # fmt: skip
        except psutil.NoSuchProcess:
            continue
        for name, value in zip(PROGRAM_COLUMNS, values, strict=True):
            sums[name] = round(sums[name] + value, 2)
    return sums


def _redis(client: Any) -> dict[str, float]:
    memory, clients = client.info("memory"), client.info("clients")
    return {
        "memory_mb": round(memory["used_memory"] / MB, 3),
        "keys": client.dbsize(),
        "clients": clients["connected_clients"],
    }


def _mariadb() -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute(_TABLES)
        tables = {
            name: dict(
                zip(TABLE_COLUMNS, (round(float(mb), 3), int(rows), int(parts)), strict=True)
            )
            for name, mb, rows, parts in cursor.fetchall()
        }
        cursor.execute(_STATUS)
        status = {name: int(value) for name, value in cursor.fetchall()}
    return {
        "connections": status["Threads_connected"],
        "pool_mb": status["Innodb_buffer_pool_bytes_data"] / MB,
        "tables": tables,
    }
