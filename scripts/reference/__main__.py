"""`python -m scripts.reference` writes the pages. It reads the code: no key, no server."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "msgplatform.settings")
django.setup()

from django.conf import settings  # noqa: E402 - after the setup

from scripts.reference import (  # noqa: E402
    bulk_actions,
    configuration,
    data_model,
    metrics,
    runbook,
)

texts = dict(runbook.pages())
for module in (bulk_actions, configuration, data_model, metrics):
    texts[module.__name__.rpartition(".")[2].replace("_", "-") + ".md"] = module.page()
for name, text in texts.items():
    (settings.BASE_DIR / "docs" / name).write_text(text, encoding="utf-8")
    print(f"docs/{name} is written")
