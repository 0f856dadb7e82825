#!/usr/bin/env python3
"""Django's command line: `python manage.py help` lists the platform's commands."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "msgplatform.settings")
    if len(sys.argv) > 1 and sys.argv[1].startswith("run_"):
        # A daemon serves no page: without admin and API docs it is a third smaller.
        os.environ.setdefault("MSGPLATFORM_PROFILE", "daemon")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
