"""The command line: `manage.py` of a clone, and the command `msgplatform` of the wheel."""

import gc
import io
import os
import sys


def main() -> None:
    # Modules live for ever, and rows and messages die by themselves: collect seldom. Collections
    # while modules are loaded are a tenth of a start.
    gc.set_threshold(20_000, 20, 20)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal or a pipe of another encoding shows an escape instead.
            stream.reconfigure(errors="backslashreplace")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "msgplatform.settings")
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    if command.startswith("run_"):
        # A daemon serves no page: without admin and API docs it is a third smaller.
        os.environ.setdefault("MSGPLATFORM_PROFILE", "daemon")
    if command == "up":  # before the settings read them
        from msgplatform.core.secrets.key_files import make_missing

        make_missing()
    from django.core.management import execute_from_command_line

    try:
        execute_from_command_line(sys.argv)
        sys.stdout.flush()
    except BrokenPipeError:  # such as `manage.py doctor | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


if __name__ == "__main__":
    main()
