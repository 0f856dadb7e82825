"""A release beside this one, made of a copy of the tree: a *before* and an *after* migration, a new
field in an order, an item and a result, a setting renamed."""

import shutil
from pathlib import Path

from msgplatform.env import BASE_DIR

VERSION = "9.9.9"
# Releases that do not work: a program ends at its start, a program's turns fail, the web server
# answers with errors, a migration fails in the middle.
BROKEN = ("crash", "sick", "mute", "migration")
_FOLDERS = ("msgplatform", "notify", "gateway", "crmsync", "templates", "docs", "locale")
_NEWEST = "0003_payload_filters"
_MIGRATION = """
from django.db import migrations, models


class Migration(migrations.Migration):
    stage = "{stage}"
    dependencies = [("notify", "{dependency}")]
    operations = [
        migrations.{operation}("bizreceive", "shade", models.CharField(max_length=20, {options})),
    ]
"""
_FAILURE = """

class Fail(migrations.RunPython):
    is_safe_before = True


def fail(apps, schema_editor):
    raise RuntimeError("broken on purpose")


Migration.operations.append(Fail(fail))
"""


def change(folder: Path, name: str, old: str, new: str) -> None:
    """Replace the only place of `old` in a file of the release."""
    path = folder / name
    text = path.read_text()
    assert text.count(old) == 1, (name, old, text.count(old))
    path.write_text(text.replace(old, new))


def _add_migration(folder: Path, name: str, **words: str) -> None:
    (folder / "notify" / "migrations" / f"{name}.py").write_text(_MIGRATION.format(**words))
    lock = (folder / "msgplatform" / "migrations" / "newest.lock").read_text()
    rows = dict(line.split(" ") for line in lock.splitlines()) | {"notify": name}
    text = "".join(f"{app} {newest}\n" for app, newest in rows.items())
    (folder / "msgplatform" / "migrations" / "newest.lock").write_text(text)


def _break(folder: Path, kind: str) -> None:
    if kind == "crash":
        change(
            folder, "notify/management/commands/run_sender.py", "\n\nclass Command",
            '\nraise SystemExit("broken on purpose")\n\nclass Command',
        )  # fmt: skip
    elif kind == "sick":
        change(
            folder, "notify/maker/maker.py", "    def turn(self) -> bool:\n",
            '    def turn(self) -> bool:\n        raise RuntimeError("broken on purpose")\n',
        )  # fmt: skip
    elif kind == "mute":
        change(
            folder, "msgplatform/doors/api/health.py", "def ready(request: HttpRequest)",
            "def ready(request: HttpRequest) -> JsonResponse:\n"
            "    return JsonResponse({}, status=500)\n"
            "\n\ndef _ready(request: HttpRequest)",
        )  # fmt: skip


def make(folder: Path, kind: str = "") -> Path:
    """The next release, in this folder; `kind` may be one of BROKEN."""
    for name in _FOLDERS:  # with what Python compiled of the modules that do not change
        shutil.copytree(BASE_DIR / name, folder / name)
    shutil.copy(BASE_DIR / "manage.py", folder)
    path = folder / "msgplatform" / "__init__.py"
    text = path.read_text()
    start = text.index('__version__ = "')
    end = text.index("\n", start)
    path.write_text(f'{text[:start]}__version__ = "{VERSION}"{text[end:]}')
    _break(folder, kind)
    _add_migration(
        folder, "0004_shade", stage="before", dependency=_NEWEST, operation="AddField",
        options="null=True",
    )  # fmt: skip
    if kind == "migration":
        with (folder / "notify" / "migrations" / "0004_shade.py").open("a") as file:
            file.write(_FAILURE)
    _add_migration(
        folder, "0005_shade", stage="after", dependency="0004_shade", operation="AlterField",
        options='db_default=""',
    )  # fmt: skip
    models_file = next(
        path
        for path in (folder / "notify" / "models").glob("*.py")
        if "    filter_since = " in path.read_text()
    )
    change(
        folder, str(models_file.relative_to(folder)), "    filter_since = ",
        '    shade = models.CharField(max_length=20, db_default="")\n    filter_since = ',
    )  # fmt: skip
    change(folder, "notify/orders.py", "lets one through at once\n",
           'lets one through at once\n    shade: str = "order"\n')  # fmt: skip
    change(folder, "notify/orders.py", '    trace: str = ""\n\n\nclass Order',
           '    trace: str = ""\n    shade: str = "item"\n\n\nclass Order')  # fmt: skip
    change(folder, "notify/orders.py", "the attempt, if the message is traced\n",
           'the attempt, if the message is traced\n    shade: str = "result"\n')  # fmt: skip
    change(
        folder, "notify/settings.py", 'NOTIFY_KEEP_DAYS = env.number("NOTIFY_KEEP_DAYS", 7,',
        'NOTIFY_KEEP_DAYS = env.number("NOTIFY_HOT_DAYS", env.number("NOTIFY_KEEP_DAYS", 7, 0,'
        " 3650),",
    )  # fmt: skip
    return folder
