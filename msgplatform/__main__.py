"""The command line: `manage.py` of a clone, and the command `msgplatform` of the wheel."""

import gc
import io
import os
import signal
import sys


def main() -> None:
    # Modules live for ever, and rows and messages die by themselves: collect seldom. Collections
    # while modules are loaded are a tenth of a start.
    gc.set_threshold(20_000, 20, 20)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal or a pipe of another encoding shows an escape instead. A log gets each line
            # at once.
            stream.reconfigure(errors="backslashreplace", line_buffering=True)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "msgplatform.settings")
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    if command.startswith("run_"):
        # A daemon serves no page: without admin and API docs it is a third smaller.
        os.environ.setdefault("MSGPLATFORM_PROFILE", "daemon")
    elif command not in ("up", "demo"):  # they stop their programs
        # As Ctrl-C: what is half done is removed. 143 is 128 and the number of the signal.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if command == "up" and not {"-h", "--help"}.intersection(sys.argv):
            # Before the settings read them.
            from msgplatform.core.secrets.key_files import make_missing

            make_missing()
        from django.core.management import execute_from_command_line

        execute_from_command_line(sys.argv)
        sys.stdout.flush()
    except BrokenPipeError:  # such as `manage.py doctor | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)  # as a shell has it: 128 and the number of the signal
    except Exception as error:
        # A daemon waits for its servers; an error that ends it belongs into its log as a whole.
        is_whole = command.startswith("run_") or "--traceback" in sys.argv
        if is_whole or not (sentence := _sentence(error)):
            raise
        sys.stderr.write(f"CommandError: {sentence}\n")
        sys.exit(1)


def _sentence(error: Exception) -> str:
    """The sentence of an error that an operator can repair; '' for a fault of the program."""
    from msgplatform.core.daemons.thread_loop import lack_of_migrations
    from msgplatform.core.errors import UNAVAILABLE, PlatformError

    if sentence := lack_of_migrations(error):
        return sentence
    is_known = isinstance(error, (OSError, PlatformError, *UNAVAILABLE))
    return (str(error) or type(error).__name__) if is_known else ""


if __name__ == "__main__":
    main()
