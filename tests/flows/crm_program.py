"""A program of CRM sync whose leases of policies are short: what a killed poller held is free soon.

    python -m tests.flows.crm_program run_sync_poller

Only these times are changed, after Django's setup: settings and code are the program's own.
"""

from __future__ import annotations

import sys

from django.core import management

LEASE_SECONDS, RENEW_SECONDS = 8.0, 2.0  # instead of 30 and 8


def shorten_leases() -> None:
    from crmsync.poller import poller
    from msgplatform.core.connections import work_redis
    from msgplatform.core.daemons.presence import Presence

    assert poller.LEASE_SECONDS > LEASE_SECONDS
    assert poller._RENEW_SECONDS > RENEW_SECONDS
    poller.LEASE_SECONDS, poller._RENEW_SECONDS = LEASE_SECONDS, RENEW_SECONDS
    poller._pollers = Presence(work_redis, "crm:poller", bool, LEASE_SECONDS)


def main() -> None:
    import manage

    execute = management.execute_from_command_line

    def execute_with_short_leases(argv: list[str] | None = None) -> None:
        import django

        django.setup()
        shorten_leases()
        execute(argv)

    management.execute_from_command_line = execute_with_short_leases
    sys.argv[0] = "manage.py"
    manage.main()


if __name__ == "__main__":
    main()
