from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError, CommandParser

from msgplatform.company.signing_in import second_factor


class Command(BaseCommand):
    help = (
        "Remove all second factors of a person who has lost them, recovery codes included, and end "
        "the person's sessions. They log in without one and set up new ones; the audit log says "
        "that it was done here."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user", help="the user's name")

    def handle(self, *args: Any, user: str, **options: Any) -> None:
        person = User.objects.filter(username=user).first()
        if person is None:
            raise CommandError(f"There is no user {user}.")
        if not second_factor.remove_all(person, "manage.py reset_second_factor"):
            raise CommandError(f"{user} has no second factor.")
        self.stdout.write(f"{user} has no second factor and no session any more.")
