from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError, CommandParser

from msgplatform.company.signing_in import pages
from msgplatform.core.web import public_address
from msgplatform.models import AuditLog


class Command(BaseCommand):
    help = (
        "Print a link that signs a user in to the console, once and within 15 minutes: the "
        "emergency way, when the company's provider is away or a password is lost."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user", help="the user's name")

    def handle(self, *args: Any, user: str, **options: Any) -> None:
        person = User.objects.filter(username=user).first()
        if person is None:
            raise CommandError(f"There is no user {user}.")
        if not person.is_active or not person.is_staff:
            raise CommandError(f"{user} may not enter the console.")
        AuditLog.record("manage.py login_link", "login_link_made", user)
        self.stdout.write(f"{public_address.served_url()}{pages.login_link(person)}")
