from collections import Counter
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from msgplatform.core.secrets import reencrypt
from msgplatform.core.secrets.encryption import State

# A program with an old key may write faster than rounds end.
_MAX_ROUNDS = 5


class Command(BaseCommand):
    help = (
        "Encrypt every stored secret with the first key of ENCRYPTION_KEY. It can be interrupted "
        "and repeated at any time, while the platform runs."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--page",
            type=int,
            default=reencrypt.PAGE,
            help="rows of each transaction (default 200)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["page"] < 1:
            raise CommandError("--page must be at least 1")
        columns = reencrypt.columns()
        for column in columns:
            rows, total_done = column.rows.count(), 0
            for count in reencrypt.renew(column, options["page"]):
                total_done += count
                self.stdout.write(f"{column}: {total_done} of {rows}")
        # Payloads, in rounds until none is under an old key: the archiver moves payloads between
        # tables meanwhile. The states of the last round count.
        sealed_total: Counter[State] = Counter()
        for number in range(_MAX_ROUNDS):
            sealed_total.clear()
            for column in reencrypt.sealed_columns():
                states: Counter[State] = Counter()
                for states_of_page in reencrypt.renew_sealed(column):
                    states.update(states_of_page)
                    self.stdout.write(f"{column}: {states.total()}")
                sealed_total.update(states)
            if number and not sealed_total[State.OLD]:
                break
        total = sum(map(reencrypt.count, columns), sealed_total)
        for state in State:
            self.stdout.write(f"values {state}: {total[state]}")
        if total[State.OLD] or total[State.CLEAR]:
            raise CommandError(
                "A program has written with an old key meanwhile: first restart all programs with "
                "the new key, then repeat this command. Keep the old keys."
            )
        if total[State.UNREADABLE]:
            raise CommandError(
                "Keep all keys, and add the missing one: `manage.py doctor` names the columns."
            )
        if len(settings.ENCRYPTION_KEYS) > 1:
            self.stdout.write(
                "Only the first key of ENCRYPTION_KEY is used now: remove the others and restart "
                "the programs."
            )
