"""`python -m scripts.reference` writes the pages. It reads the code: no key, no server."""

from __future__ import annotations

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "msgplatform.settings")
django.setup()

from django.conf import settings  # noqa: E402 - after the setup

from scripts.reference import bulk_actions, configuration, data_model, metrics  # noqa: E402

for module in (bulk_actions, configuration, data_model, metrics):
    name = module.__name__.rpartition(".")[2].replace("_", "-")
    path = settings.BASE_DIR / "docs" / f"{name}.md"
    path.write_text(module.page(), encoding="utf-8")
    print(f"docs/{path.name} is written")
