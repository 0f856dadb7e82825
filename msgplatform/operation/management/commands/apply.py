import os
import sys
from pathlib import Path
from typing import Any, TextIO

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.utils import Error

from msgplatform.core.characters import printable
from msgplatform.core.data import transactions
from msgplatform.core.errors import UNAVAILABLE, NotNow
from msgplatform.models import Biz
from msgplatform.setup.platform_file import applying, reading
from msgplatform.setup.platform_file.outcome import Action, FileFaults, Outcome, lines
from msgplatform.setup.platform_file.references import Secrets

_NOTHING = "Nothing was changed."
_PERHAPS = "It may have been applied, or not: --dry-run shows what is left to be done."


class Command(BaseCommand):
    help = (
        "Bring the platform to what files say: everything that they describe is created or "
        "replaced as by PUT of the management API, all of it or nothing."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "paths", nargs="+", type=Path, help="files, and folders with *.yaml and *.yml"
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="show what would be changed, and change nothing"
        )
        parser.add_argument(
            "--prune", action="store_true",
            help="remove, or switch off, what the sections of the files do not have; asks first",
        )  # fmt: skip
        parser.add_argument("--yes", action="store_true", help="do not ask")
        parser.add_argument(
            "--system", action="append", default=[], metavar="NAME",
            help="refuse objects that do not belong to this business system, and remove no others; "
            "repeat it for several",
        )  # fmt: skip
        parser.add_argument(
            "--label", default="",
            help="where the files come from, such as a commit; the console shows it",
        )  # fmt: skip
        parser.add_argument(
            "--secrets", type=Path, metavar="FOLDER", help="the folder that file:NAME refers to"
        )
        parser.add_argument(
            "--new-secrets", type=Path, metavar="FILE",
            help="where to write secrets that the platform makes, such as a consumer's signing "
            "secret; a new file, which its owner alone can read",
        )  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        if len(options["label"]) > applying.MAX_LABEL:
            raise CommandError(f"A label has at most {applying.MAX_LABEL} characters.")
        try:
            self._apply(options)
        except (FileFaults, NotNow) as error:
            raise CommandError(f"{error}\n{_NOTHING}") from None
        except UNAVAILABLE as error:
            is_certain = isinstance(error, Error) and transactions.nothing_happened(error)
            words = _NOTHING if is_certain or options["dry_run"] else _PERHAPS
            raise CommandError(f"{error}\n{words}") from None

    def _apply(self, options: dict[str, Any]) -> None:
        read_secret = Secrets(os.environ, options["secrets"]).read
        description = reading.read_files(options["paths"], read_secret)
        systems = frozenset(options["system"])
        stored_names = Biz.objects.filter(name__in=systems).values_list("name", flat=True)
        if missing := sorted(systems.difference(stored_names)):
            raise CommandError(f"There is no business system {', '.join(missing)}.")
        options_of_run = {
            "actor": "manage.py apply", "should_prune": options["prune"],
            "systems": systems, "label": options["label"],
        }  # fmt: skip
        removable = None
        if options["dry_run"] or (options["prune"] and not options["yes"]):
            trial = applying.apply(description, applying.Options(**options_of_run, is_trial=True))
            if options["dry_run"]:
                self._show(trial, options)
                return
            removable = {change.title for change in trial.of(Action.REMOVED)}
            if removable and not self._is_agreed(trial):
                raise CommandError(_NOTHING)
        file = self._new_secrets(options["new_secrets"])
        try:
            outcome = applying.apply(
                description, applying.Options(**options_of_run, removable=removable)
            )
        except BaseException:
            file.close()
            if options["new_secrets"]:  # the empty file would stop the next try
                options["new_secrets"].unlink(missing_ok=True)
            raise
        try:
            with file:
                for change in outcome.changes:
                    for name, value in change.shown_once.items():
                        file.write(f"{change.title} {name} {value}\n")
        except OSError as error:
            raise CommandError(
                f"The files were applied, but {options['new_secrets']} is not written: "
                f"{error.strerror}. New secrets of {_new_names(outcome)} are stored: rotate them "
                "in the console to see them, and remove that file."
            ) from None
        self._show(outcome, options)

    def _is_agreed(self, trial: Outcome) -> bool:
        for line in lines(trial):
            self.stdout.write(printable(line))
        if not sys.stdin.isatty():
            raise CommandError(f"--prune asks first: answer with --yes. {_NOTHING}")
        count = len(trial.of(Action.REMOVED))
        question = f"Objects to remove or switch off: {count}. Go on? [yes/no] "
        try:
            return input(question).strip() == "yes"
        except EOFError:  # Ctrl-D
            return False

    @staticmethod
    def _new_secrets(path: Path | None) -> TextIO:
        """A new file for new secrets. Make the file before `apply`, so that no secret can be
        lost."""
        if path is None:
            return Path(os.devnull).open("w", encoding="utf-8")
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            return os.fdopen(descriptor, "w", encoding="utf-8")
        except OSError as error:
            raise CommandError(f"{path} cannot be made: {error.strerror}.") from None

    def _show(self, outcome: Outcome, options: dict[str, Any]) -> None:
        for line in lines(outcome, is_verbose=options["verbosity"] > 1):
            self.stdout.write(printable(line))
        new_names = _new_names(outcome)
        if new_names and not options["new_secrets"] and not options["dry_run"]:
            self.stderr.write(
                f"New secrets of {new_names} are stored and were not shown: rotate them "
                "in the console to see them, or name a file with --new-secrets the next time."
            )


def _new_names(outcome: Outcome) -> str:
    """The objects for which the platform made secrets."""
    return ", ".join(change.title for change in outcome.changes if change.shown_once)
