import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from msgplatform.company.audit_export import lines
from msgplatform.company.audit_export.lines import Chain, read_lines

_SHOWN_FAULTS = 100


class Command(BaseCommand):
    help = (
        "Verify exported lines of the audit log: that none was changed, left out, put elsewhere or "
        "cut off. Needs no database. Ends with 0 if all is well, 1 if not, 2 if it cannot tell."
    )
    requires_system_checks = ()  # an auditor's machine has public keys and files

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "files", nargs="*", metavar="FILE", help="in order, oldest first; may be gzip; -: stdin"
        )
        parser.add_argument(
            "--public-key",
            action="append",
            metavar="KEY",
            help="of the lines' signatures, repeatable; by default those of AUDIT_SIGNING_KEY",
        )
        parser.add_argument(
            "--first", type=int, metavar="N", help="the number of the line that must come first"
        )
        parser.add_argument(
            "--last",
            type=int,
            metavar="N",
            help="the number of a line that must be there: the end of a file cannot tell what "
            "was cut off behind it",
        )
        parser.add_argument(
            "--mixed", action="store_true", help="the files hold other lines too, which are skipped"
        )
        parser.add_argument(
            "--show-public-keys", action="store_true", help="print the keys for others to verify"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        texts, own_keys = options["public_key"], settings.AUDIT_SIGNING_KEYS
        if not texts and not own_keys:
            words = "AUDIT_SIGNING_KEY is not set: name the public keys with --public-key."
            raise CommandError(words, returncode=2)
        if not texts:
            try:
                texts = [lines.public_text(lines.Signer(key).public_key) for key in own_keys]
            except ValueError:
                words = "AUDIT_SIGNING_KEY holds a text that is no key"
                raise CommandError(words, returncode=2) from None
        if options["show_public_keys"]:
            self.stdout.write("\n".join(texts))
            return
        if not options["files"]:
            raise CommandError("Name a file, or - for standard input.", returncode=2)
        try:
            chain = Chain(lines.public_keys(texts), is_mixed=options["mixed"])
        except ValueError:
            raise CommandError("--public-key is no public key", returncode=2) from None
        with ExitStack() as stack:
            for name in options["files"]:
                try:
                    path = None if name == "-" else Path(name)
                    file = stack.enter_context(path.open("rb")) if path else sys.stdin.buffer
                except OSError as error:
                    raise CommandError(f"{name}: {error.strerror}", returncode=2) from error
                chain.read(name, read_lines(file))
        chain.end(options["first"], options["last"])
        for fault in chain.faults[:_SHOWN_FAULTS]:
            self.stdout.write(fault)
        if (more := len(chain.faults) - _SHOWN_FAULTS) > 0:
            self.stdout.write(f"… and {more} more")
        if chain.count:
            repeats = f", {chain.repeat_count} came again" if chain.repeat_count else ""
            self.stdout.write(
                f"{chain.count} lines, {chain.first} to {chain.last}{repeats}; with nothing "
                f"before line {chain.first} and after line {chain.last} in these files"
            )
        if chain.faults:
            raise CommandError(f"Faults: {len(chain.faults)}", returncode=1)
        self.stdout.write("The chain is whole.")
