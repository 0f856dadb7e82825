import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.serializers.json import DjangoJSONEncoder

from msgplatform.company.person_data import erasure_list, erasures, people
from msgplatform.company.person_data.models import Erasure
from msgplatform.core.characters import printable
from msgplatform.core.errors import InvalidInput

_ACTOR = "manage.py person"
_IDENTIFIERS = (
    ("phone", "NUMBER", "a phone number in any usual spelling"),
    ("email", "ADDRESS", "an e-mail address"),
    ("user", "SYSTEM/ID", "a user id of a business system"),
    ("lead", "ID", "the id of a lead"),
)


class Command(BaseCommand):
    help = (
        "Find, export or erase one person's data over all flows. Erasures are carried out by "
        "run_bulk; `list` shows them, `repeat` runs all of the list once more."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="what", required=True)
        for name, help_text in (
            ("find", "count what is held, by kind"),
            ("export", "write everything that is held as one JSON document"),
            ("erase", "start an erasure"),
            ("hash", "print the keyed hashes by which a proof is recognised"),
        ):
            action = actions.add_parser(name, help=help_text)
            for option, metavar, option_help in _IDENTIFIERS:
                action.add_argument(
                    f"--{option}", action="append", default=[], metavar=metavar,
                    help=f"{option_help}; repeatable; -: from standard input, a line each",
                )  # fmt: skip
            if name == "erase":
                action.add_argument("--reason", required=True, help="why; it is kept")
                action.add_argument(
                    "--end-open",
                    action="store_true",
                    help="end what is on its way instead of waiting until it is delivered",
                )
        actions.add_parser("list", help="the erasures, the newest first")
        actions.add_parser(
            "repeat", help="run every erasure of the list once more, as after a restore of the "
            "archive's database or of a Redis"
        )  # fmt: skip

    def handle(self, *args: Any, what: str, **options: Any) -> None:
        if what == "list":
            for row in Erasure.objects.defer("identifiers"):
                detail = {"erased": row.erased, "open": row.open, "hashes": row.hashes}
                line = (
                    f"{row.key} {row.created_at.isoformat()} {row.state} {row.created_by}: "
                    f"{row.reason} {json.dumps(detail, cls=DjangoJSONEncoder)}"
                )
                self.stdout.write(printable(line))
            return
        if what == "repeat":
            self.stdout.write(f"Erasures that run once more: {erasures.repeat_all(_ACTOR)}")
            return
        identifiers = {}
        for name, _metavar, _help in _IDENTIFIERS:
            values = options[name]
            if values == ["-"] and not (values := sys.stdin.read().splitlines()):
                raise CommandError(f"--{name} -: standard input has no line.")
            identifiers[f"{name}s"] = values
        try:
            person = people.person_of(identifiers)
            if what == "erase":
                row = erasures.start(identifiers, options["reason"], options["end_open"], _ACTOR)
                self.stdout.write(f"{row.key}: run_bulk carries it out.")
                return
        except InvalidInput as error:
            raise CommandError(f"{error.field}: {error}") from None
        except OSError as error:
            raise CommandError(f"{erasure_list.path()}: {error.strerror}") from None
        if what == "hash":
            self.stdout.write("\n".join(people.hashes(person.identifiers)))
        elif what == "export":
            people.record(_ACTOR, "person_exported", person)
            for piece in people.export(person):
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        else:
            people.record(_ACTOR, "person_found", person)
            hits_by_store = people.preview(person, float("inf"))
            for hits in hits_by_store:
                waits = f", {hits.open_count} of them on their way" if hits.open_count else ""
                partly = "" if hits.is_whole else " (it could not be read to its end)"
                self.stdout.write(f"{hits.store.name}: {hits.count}{waits}{partly}")
            if not hits_by_store:
                self.stdout.write("Nothing is held of this person.")
