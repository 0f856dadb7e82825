"""MariaDB, where it differs from MySQL."""

from msgplatform.core.data.engines.contract import Connection
from msgplatform.core.data.engines.mysql.engine import MySql


class MariaDb(MySql):
    name = "MariaDB"
    dump_programs, load_programs = ("mariadb-dump", "mysqldump"), ("mariadb", "mysql")
    oldest_version = (10, 6)  # SKIP LOCKED, and the plans we rely on; Django's bound is lower
    row_word = ""
    explain = "EXPLAIN"

    def allow_idle_transactions(self, connection: Connection, seconds: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET idle_transaction_timeout = %s", [seconds])
