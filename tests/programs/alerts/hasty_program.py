"""A program of the platform, started as by manage.py, that waits seconds where others wait minutes.

    python -m tests.programs.alerts.hasty_program run_maker

Only waits are changed, after Django's setup: settings, profile and code are the program's own.
"""

from __future__ import annotations

import importlib
import sys

from django.core import management

# What is a setting is set by its variable.
WAITS = {
    "msgplatform.core.daemons.watch.kinds": {"LOOK_SECONDS": 1.0},
    "msgplatform.core.archive.retention": {"EVERY_SECONDS": 1.0},
    "notify.archive.archiver": {"ROUND_SECONDS": 1.0},
    "notify.monitor.conditions": {"PATIENCE_SECONDS": 1.0},
    "crmsync.monitor.conditions": {
        "UNREADABLE_SECONDS": 1.0, "HORIZON_SECONDS": 8.0, "STALLED_SECONDS": 2.0,
    },
    "crmsync.retention": {"EVERY_SECONDS": 1.0},
    "gateway.monitor.conditions": {"OUTAGE_SECONDS": 1.0},
    "gateway.receiver.wrong_logins": {"FIRST_DELAY": 0.0},
}  # fmt: skip


def shorten_waits() -> None:
    for module, waits in WAITS.items():
        for name, seconds in waits.items():
            loaded = importlib.import_module(module)
            assert hasattr(loaded, name), (module, name)
            setattr(loaded, name, seconds)


def main() -> None:
    import manage

    execute = management.execute_from_command_line

    def execute_hastily(argv: list[str] | None = None) -> None:
        import django

        django.setup()
        shorten_waits()
        execute(argv)

    management.execute_from_command_line = execute_hastily
    sys.argv[0] = "manage.py"
    manage.main()


if __name__ == "__main__":
    main()
