import json
import re
import time
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from msgspec.structs import asdict

from crmsync.messages.fields import NO_POLICY, read_policy
from crmsync.models import Operation, Policy
from crmsync.recovery.operation_finder import OperationFinder
from crmsync.recovery.replay import ReplayCounts, replay
from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput
from msgplatform.messages import filters

_AGE = re.compile(r"(\d{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_PROGRESS_SECONDS = 5.0


class Command(BaseCommand):
    help = (
        "Send records to their CRMs again, by the operations that sent them. Operations that the "
        "database has lost, because it was restored from an older backup, are taken from their "
        "copies in Redis. It can be interrupted and repeated while the platform runs."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument(
            "--since",
            metavar="TIME",
            help="operations that began then or later: 2026-11-20T14:30+08:00 (without a zone a "
            "time of TIME_ZONE), a day, or 2h, 30m, 7d",
        )
        which.add_argument(
            "--operation",
            metavar="ID",
            type=int,
            action="append",
            help="this operation; can be repeated",
        )
        parser.add_argument("--policy", help="only this one: its id, or source/crm: hive/sales")
        parser.add_argument("--dry-run", action="store_true", help="count, and change nothing")
        parser.add_argument("--json", action="store_true", help="the summary as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        # Records that change from now on are left to the poller.
        started_at = sql.now()
        policy = options["policy"]
        try:
            policy_id = 0 if policy is None else read_policy(policy, "--policy")
        except InvalidInput as error:
            raise CommandError(f"--policy: {error}") from None
        # Operations of a policy that is gone are counted.
        stores = Policy.objects.filter(pk=policy_id), Operation.objects.filter(policy_id=policy_id)
        if policy is not None and not any(rows.exists() for rows in stores):
            raise CommandError(f"--policy: {NO_POLICY}")
        finder = OperationFinder(None if policy is None else policy_id)
        if options["operation"]:
            operations = finder.by_ids(options["operation"])
        else:
            operations = finder.since(_moment(options["since"], started_at))
        total = ReplayCounts()
        next_line = time.monotonic() + _PROGRESS_SECONDS
        for operation in operations:
            total.add(replay(operation, started_at, "sync_recover", options["dry_run"]))
            # On standard error: with --json only the summary is on standard output.
            if time.monotonic() >= next_line:
                self.stderr.write(f"{total.operations} operations, {total.sent} records so far")
                next_line = time.monotonic() + _PROGRESS_SECONDS
        if options["json"]:
            summary = asdict(total) | {
                "dry_run": options["dry_run"],
                "missing": finder.missing,
                "redis_problem": finder.problem,
            }
            self.stdout.write(json.dumps(summary))
        else:
            lines = ["This is what would be done:"] if options["dry_run"] else []
            lines += [
                f"Operations: {total.operations}, of them only in Redis: "
                f"{total.operations_from_redis}",
                f"Records sent again: {total.sent}, of them missing or older in the database: "
                f"{total.recreated}",
                f"Records left: {total.left_in_flight} in flight, {total.left_dismissed} "
                f"dismissed, {total.left_changed} changed since this began",
            ]
            if total.left_erased:
                lines.append(
                    f"Records whose values were erased, and are not sent: {total.left_erased}"
                )
            if total.operations_without_policy:
                lines.append(f"Operations whose policy is gone: {total.operations_without_policy}")
            for line in lines:
                self.stdout.write(line)
        # Raise last, after the summary: the other operations were sent.
        if finder.problem:
            raise CommandError(
                f"Redis could not be read, so only the database was: {finder.problem}"
            )
        if finder.missing:
            raise CommandError(
                "These operations are neither in the database nor in Redis"
                f"{f', with the policy {policy}' if policy else ''}: "
                + ", ".join(map(str, finder.missing))
            )


def _moment(text: str, now: datetime) -> datetime:
    try:
        if age := _AGE.fullmatch(text.strip()):
            return now - timedelta(**{_UNITS[age[2]]: int(age[1])})
        return filters.moment(text.strip(), "since")
    except (InvalidInput, OverflowError) as error:  # there is no time before the year 1
        raise CommandError(f"--since: {error}; or an age such as 2h, 30m, 7d") from None
