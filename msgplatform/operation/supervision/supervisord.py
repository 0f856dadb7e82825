"""supervisord, with logs that lose lines on a full disk. The library's handler raises there: then
supervisord ends with all programs, or reads a log no more and its program stands still."""

from contextlib import suppress

from supervisor import loggers, supervisord


class LogFile(loggers.RotatingFileHandler):  # type: ignore[misc]  # supervisor has no types
    def emit(self, record: object) -> None:
        try:
            super().emit(record)
        except (OSError, ValueError):  # a stream that a failed rotation has closed: ValueError
            self.closed = True  # `reopen` would close the stream once more, which raises, too
            with suppress(OSError):
                self.reopen()


if __name__ == "__main__":
    loggers.RotatingFileHandler = LogFile
    supervisord.main()
