from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from msgplatform.core import cells
from msgplatform.core.data import cell_record, sql
from msgplatform.core.data.id_nodes import LEASE_SECONDS
from msgplatform.models import AuditLog, IdNode


class Command(BaseCommand):
    help = (
        "Make this database belong to the cell that CELL names, while no program of the platform "
        "runs. Ids that were made before stay valid."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        own, recorded = cells.own(), cell_record.read()
        if own == recorded:
            self.stdout.write(f"The database belongs to cell {own} already; nothing was changed.")
            return
        # The lease of a killed program ends by itself; a frozen program loses its node.
        if running := IdNode.objects.filter(lease_until__gt=sql.now()).count():
            raise CommandError(
                f"{running} programs still hold id nodes of this database. Stop every program, "
                f"wait {LEASE_SECONDS} seconds if some were killed, and run set_cell again."
            )
        with transaction.atomic():
            cell_record.write(own)
            AuditLog.record("manage.py set_cell", "cell_set", str(own), before=str(recorded))
        self.stdout.write(
            f"The database belonged to cell {recorded} and belongs to cell {own} now. Start its "
            f"programs with CELL={own}."
        )
