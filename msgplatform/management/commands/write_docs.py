from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from msgplatform.reference import bulk_actions, configuration, data_model, metrics, runbook


class Command(BaseCommand):
    help = "Write the pages of docs/ that come from the code."
    requires_system_checks = ()  # it reads the code, and needs no key and no server

    def handle(self, *args: Any, **options: Any) -> None:
        texts = dict(runbook.pages())
        for module in (bulk_actions, configuration, data_model, metrics):
            texts[module.__name__.rpartition(".")[2].replace("_", "-") + ".md"] = module.page()
        for name, text in texts.items():
            (settings.BASE_DIR / "docs" / name).write_text(text, encoding="utf-8")
            self.stdout.write(f"docs/{name} is written")
