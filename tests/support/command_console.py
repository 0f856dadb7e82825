"""Commands of manage.py in one process, one after another: its start takes longer than most."""

import json
import os
from pathlib import Path
from typing import NamedTuple

from tests.cluster import Console

# Each command ends as by manage.py. An exception without a sentence for people fails the test.
_COMMAND = """
import contextlib, io, json
from django.contrib.contenttypes.models import ContentType
from django.core.management import execute_from_command_line
ContentType.objects.clear_cache()
output, errors, code = io.StringIO(), io.StringIO(), 0
with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
    try:
        execute_from_command_line(["manage.py", *{words!r}])
    except SystemExit as end:
        code = end.code or 0
print(json.dumps([code, output.getvalue(), errors.getvalue()]))
"""


class Ended(NamedTuple):
    """The end of a command."""

    returncode: int
    stdout: str
    stderr: str


class CommandConsole:
    """A process for the database at a URL, with its state and its log in `folder`."""

    def __init__(self, url: str, folder: Path) -> None:
        environment = {
            **os.environ, "DATABASE_URL": url, "STATE_DIR": str(folder),
            "DJANGO_SETTINGS_MODULE": "msgplatform.settings",
        }  # fmt: skip
        self._console = Console(environment, folder / "console.log")

    def manage(self, *words: str) -> Ended:
        answer = self._console.run(_COMMAND.format(words=words))
        return Ended(*json.loads(answer.splitlines()[-1]))

    def run(self, code: str) -> str:
        """What the code printed. Fails with the traceback when it raised."""
        return self._console.run(code)

    def close(self) -> None:
        self._console.close()
