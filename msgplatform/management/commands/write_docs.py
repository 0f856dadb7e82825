from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from msgplatform.reference import bulk_actions, configuration, data_model, metrics


class Command(BaseCommand):
    help = "Write the pages of docs/ that come from the code."
    requires_system_checks = ()  # it reads the code, and needs no key and no server

    def handle(self, *args: Any, **options: Any) -> None:
        for module in (bulk_actions, configuration, data_model, metrics):
            name = module.__name__.rpartition(".")[2].replace("_", "-")
            path = settings.BASE_DIR / "docs" / f"{name}.md"
            path.write_text(module.page(), encoding="utf-8")
            self.stdout.write(f"docs/{path.name} is written")
