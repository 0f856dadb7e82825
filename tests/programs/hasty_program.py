"""A program of the platform, started as by manage.py, that waits seconds where others wait minutes.

    python -m tests.programs.hasty_program alerts run_maker

Only the waits of the set that is named are changed, after Django's setup: settings, profile and
code are the program's own.
"""

import importlib
import sys
from typing import Any

from django.core import management

# Set → module → its constants. What is a setting is set by its variable.
WAITS: dict[str, dict[str, dict[str, float]]] = {
    "alerts": {
        "msgplatform.monitor.watch.watch": {"LOOK_SECONDS": 1.0},
        "msgplatform.core.data.server": {"REPORT_SECONDS": 1.0},  # and the watch
        "msgplatform.core.archive.retention": {"EVERY_SECONDS": 1.0},
        "msgplatform.company.audit_export.exporter": {
            "EVERY_SECONDS": 1.0,
            "MAX_PAUSE_SECONDS": 2.0,
        },
        "notify.archive.archiver": {"ROUND_SECONDS": 1.0},
        "msgplatform.company.person_data.runner": {"LIST_EVERY_SECONDS": 1.0},
        "notify.monitor.conditions": {"PATIENCE_SECONDS": 1.0},
        "crmsync.monitor.conditions": {
            "UNREADABLE_SECONDS": 1.0, "HORIZON_SECONDS": 8.0, "STALLED_SECONDS": 2.0,
        },
        "crmsync.retention": {"EVERY_SECONDS": 1.0},
        "gateway.monitor.conditions": {"OUTAGE_SECONDS": 1.0},
        "gateway.replicas": {"MISSING_SECONDS": 2.0},
        "gateway.receiver.wrong_logins": {"FIRST_DELAY": 0.0},
    },
    # The policies that a killed poller held are free soon.
    "leases": {"crmsync.poller.poller": {"LEASE_SECONDS": 8.0, "RENEW_SECONDS": 2.0}},
}  # fmt: skip


def shorten_waits(waits: dict[str, dict[str, float]]) -> None:
    for name, constants in waits.items():
        module: Any = importlib.import_module(name)
        for constant, seconds in constants.items():
            assert getattr(module, constant) > seconds, (name, constant)
            setattr(module, constant, seconds)


def main() -> None:
    from msgplatform import __main__ as command_line

    waits = WAITS[sys.argv.pop(1)]
    execute = management.execute_from_command_line

    def execute_hastily(argv: list[str] | None = None) -> None:
        import django

        django.setup()
        shorten_waits(waits)
        execute(argv)

    management.execute_from_command_line = execute_hastily
    sys.argv[0] = "manage.py"
    command_line.main()


if __name__ == "__main__":
    main()
