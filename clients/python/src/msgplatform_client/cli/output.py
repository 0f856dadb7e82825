"""What a command prints: lines for people, or JSON, one object in a line, for programs.

Texts of others (answers of consumers, names) may hold control characters, with which a terminal
could be made to do things: they are printed as escapes.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import IO, Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ..errors import PlatformError, ProblemError
from .exits import Exit, Failure

# A cell of a table or a part of a line: its text, and its style.
Part = str | tuple[str, str]
GOOD, BAD, WAITING, FAINT, BOLD = "green", "red", "yellow", "dim", "bold"
STATUS_STYLES = {
    "delivered": GOOD, "exhausted": BAD, "poison": BAD, "skipped": FAINT,
    "pending": WAITING, "queued": WAITING, "held": WAITING, "accepted": WAITING,
}  # fmt: skip


class Output:
    """`is_json`: results are JSON, in lines. Warnings and errors go to stderr."""

    def __init__(self, is_json: bool = False) -> None:
        self.is_json = is_json
        # No colours without a terminal, or with NO_COLOR; no line is cut or broken.
        self._results = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
        self._notes = Console(
            stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False
        )

    def result(self, value: Any, *lines: Iterable[Part]) -> None:
        """A result: as JSON its value, for people these lines."""
        if self.is_json:
            print(_json(value, sys.stdout), flush=True)
            return
        for line in lines:
            self._results.print(_text(line))

    def table(self, rows: Sequence[Sequence[Part]]) -> list[list[Part]]:
        """The rows with their columns under each other."""
        columns = list(zip(*rows, strict=True))
        widths = [max(cell_len(_printable(_plain(cell))) for cell in column) for column in columns]
        return [
            [
                part
                for cell, width in zip(row, widths, strict=True)
                for part in (cell, " " * (width - cell_len(_printable(_plain(cell))) + 2))
            ]
            for row in rows
        ]

    def file(self, text: str) -> None:
        """The content of a file: in UTF-8, and on a terminal with escapes."""
        if sys.stdout.isatty():
            text = "\n".join(map(_printable, text.split("\n")))
        elif isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")
        sys.stdout.write(text)

    def note(self, *parts: Part) -> None:
        """A line beside the results, for people who watch."""
        if self.is_json:
            self._print_note({"note": "".join(map(_plain, parts))})
        else:
            self._notes.print(_text(parts))

    def warn(self, sentence: str) -> None:
        if self.is_json:
            self._print_note({"warning": sentence})
        else:
            self.note(("Warning: ", WAITING), sentence)

    def error(self, error: Exception, code: Exit) -> None:
        """Says in a sentence why the command has failed."""
        sentences = [sentence(error)]
        if isinstance(error, ProblemError):
            # The detail has them already when there is one.
            details = [f"{each.field}: {each.message}" for each in error.errors]
            sentences += [each for each in details if each not in sentences[0]]
        elif isinstance(error, Failure):
            sentences += error.details
        sentences += getattr(error, "__notes__", ())
        if self.is_json:
            problem = error.problem if isinstance(error, ProblemError) else None
            words = " ".join(sentences)
            self._print_note({"error": words, "exit_code": int(code), "problem": problem})
            return
        self.note(("Error: ", BAD), sentences[0])
        for each in sentences[1:]:
            self.note("  ", each)

    def _print_note(self, value: Mapping[str, Any]) -> None:
        print(_json(value, self._notes.file), file=self._notes.file, flush=True)


def sentence(error: Exception) -> str:
    """The error in words."""
    if isinstance(error, ProblemError):
        if error.status == HTTPStatus.UNAUTHORIZED:
            return "The API key is not valid there, or not valid any more: run `msgp login`."
        return error.detail or f"{error.title} ({error.status})."
    return str(error) if isinstance(error, PlatformError) or error.args else repr(error)


def moment(text: str) -> str:
    """A time of the platform in a shorter form, in seconds."""
    return text[:19].replace("T", " ") + "Z" if text.endswith("Z") else text


def deliveries(message: Mapping[str, Any]) -> list[Part]:
    """What became of a message, in a part of a line."""
    parts: list[Part] = []
    for each in message.get("deliveries", ()):
        status = str(each.get("status", ""))
        answer = each.get("http_status") or each.get("error") or ""
        parts += ["  " if parts else "", f"{each.get('consumer') or each.get('subscription')} "]
        parts.append((f"{status} {answer}".strip(), STATUS_STYLES.get(status, "")))
    if not parts:
        state = str(message.get("state", ""))
        words = "nobody subscribes to it" if state == "distributed" else state
        parts.append((words, FAINT if state == "distributed" else WAITING))
    return parts


def _text(parts: Iterable[Part]) -> Text:
    text = Text()
    for part in (parts,) if isinstance(parts, str) else parts:
        words, style = (part, "") if isinstance(part, str) else part
        text.append(_printable(words), style)
    return text


def _plain(part: Part) -> str:
    return part if isinstance(part, str) else part[0]


def _json(value: Any, stream: IO[str]) -> str:
    """JSON in one line; what a terminal could take for a command is escaped, and what the stream
    has no bytes for."""
    text = json.dumps(value, ensure_ascii=False)
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return "".join(
        each if each.isprintable() and each.encode(encoding, "ignore") else json.dumps(each)[1:-1]
        for each in text
    )


def _printable(words: str) -> str:
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in words
    )
