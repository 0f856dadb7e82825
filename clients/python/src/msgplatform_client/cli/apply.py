"""Commands about what is set up: apply platform files, compare them, and write what there is."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import PlatformError, ProblemError, error_entries
from ..retries import may_have_happened
from . import platform_files
from .exits import Exit, Failure
from .failures import confirm
from .output import BAD, BOLD, FAINT, GOOD, WAITING, Part, sentence
from .platform_files import Description
from .session import Session, on_platform

_TIMEOUT = 300.0  # of a request, in seconds: thousands of objects take a while
_SIGNS = {"added": ("+", GOOD), "changed": ("~", WAITING), "removed": ("-", BAD),
          "unlisted": (".", FAINT)}  # fmt: skip
PathsArgument = Annotated[list[Path], typer.Argument(help="Files, or folders of *.yaml.")]
PruneOption = Annotated[
    bool,
    typer.Option("--prune", help="Remove what the sections of these files do not have."),
]
SecretsOption = Annotated[
    Path | None,
    typer.Option("--secrets", metavar="FOLDER", show_default=False, help="Where file:NAME leads."),
]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Name what the files do not have, too.")
]


@on_platform
def apply(
    session: Session,
    paths: PathsArgument,
    is_trial: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
    prune: PruneOption = False,
    is_certain: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before something is removed.")
    ] = False,
    label: Annotated[
        str, typer.Option(help="Where the files come from, such as a commit; the console shows it.")
    ] = "",
    secrets: SecretsOption = None,
    new_secrets: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="Write the signing secrets of new consumers to this new file.",
        ),
    ] = None,
    is_verbose: VerboseOption = False,
) -> None:
    """Bring the platform to what platform files say: all of it, or nothing.

    It needs a management key with manage:platform. ${NAME} and file:NAME are read on this machine.

    msgp apply platform.yaml --dry-run

    msgp apply platform/ --prune --label "$(git rev-parse --short HEAD)"
    """  # fmt: skip
    description = platform_files.read(paths, secrets)
    session.compare_versions()
    query = {"prune": prune, "label": label}
    if is_trial:
        _show(session, _put(session, description, {**query, "dry_run": True}), is_verbose)
        return
    if prune and not is_certain:
        trial = _put(session, description, {**query, "dry_run": True})
        if trial["counts"]["removed"]:
            _show(session, trial, is_verbose)
            confirm(f"Remove {trial['counts']['removed']} objects, and apply the rest?")
        query["plan"] = trial["plan"]
    with _reserved(new_secrets):
        outcome = _put_once(session, description, query)
    made = _without_secrets(outcome)
    if new_secrets:
        try:
            new_secrets.write_text(json.dumps(made, indent=1), encoding="utf-8")
        except OSError as error:
            words = f"The files were applied, but {new_secrets} is not written: {error.strerror}."
            advice = f"Secrets of {', '.join(made)} were in that answer only: rotate them."
            raise Failure(words, details=[advice] if made else ()) from error
    elif names := [name for name, secret in made.items() if secret]:
        session.output.warn(
            f"New secrets of {', '.join(names)} are stored and were not shown: rotate them to see "
            "them, or name a file with --new-secrets the next time."
        )
    _show(session, outcome, is_verbose)


@on_platform
def diff(
    session: Session,
    paths: PathsArgument,
    prune: PruneOption = False,
    secrets: SecretsOption = None,
    has_code: Annotated[
        bool, typer.Option("--exit-code", help="End with 1 when something is different.")
    ] = False,
    is_verbose: VerboseOption = False,
) -> None:
    """Compare platform files with the platform: `msgp apply --dry-run`.

    msgp diff platform/ --prune --exit-code
    """
    description = platform_files.read(paths, secrets)
    session.compare_versions()
    outcome = _put(session, description, {"prune": prune, "dry_run": True})
    _show(session, outcome, is_verbose)
    if has_code and any(outcome["counts"].get(name) for name in ("added", "changed", "removed")):
        raise typer.Exit(Exit.FAILED)


@on_platform
def export(
    session: Session,
    file: Annotated[
        str, typer.Option("--output", "-o", help="Write to this file; without it to stdout.")
    ] = "",
    sections: Annotated[
        list[str] | None, typer.Option("--section", help="Only this section, such as consumers.")
    ] = None,
    systems: Annotated[
        list[str] | None, typer.Option("--system", help="Only what belongs to this system.")
    ] = None,
    references: Annotated[
        bool, typer.Option("--references", help="With references in the place of secrets.")
    ] = False,
) -> None:
    """Write a platform file of what there is, without secrets.

    msgp export -o platform.yaml
    """
    # Only empty names are refused, as a comma: left out, the file would have everything.
    query = {"section": sections, "system": systems, "references": ["true"] if references else None}
    parameters = {name: ",".join(values) or "," for name, values in query.items() if values}
    # As people write it: JSON, the other form, has no references.
    accept = {"Accept": "application/yaml"}
    answer = session.request("GET", "platform", params=parameters, headers=accept, timeout=_TIMEOUT)
    text = answer.text
    if session.output.is_json:
        text = json.dumps(platform_files.parse(text), ensure_ascii=False) + "\n"
    if not file:
        session.output.file(text)
        return
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Failure(f"{file} cannot be written: {error.strerror}.") from error


def _put_once(session: Session, description: Description, query: Mapping[str, Any]) -> Any:
    """The platform's answer, which alone has new secrets. Raises Failure when it is lost, too: the
    request is not repeated then."""
    try:
        return _put(session, description, query)
    except PlatformError as error:
        if not may_have_happened(error):
            raise
        words = f"The files were applied, or not; the answer was lost. {sentence(error)}"
        advice = (
            "Run `msgp diff` with the same files: it says what is not applied. The signing secrets "
            "of new consumers were in that answer only: rotate those of consumers that are there."
        )
        raise Failure(words, Exit.UNREACHABLE, [advice]) from error


def _put(session: Session, description: Description, query: Mapping[str, Any]) -> Any:
    """The platform's answer. Raises Failure with the place of each fault."""
    parameters = {
        name: "true" if value is True else value for name, value in query.items() if value
    }
    try:
        return session.request(
            "PUT", "platform", params=parameters, json=description.value, timeout=_TIMEOUT
        ).json()
    except ProblemError as error:
        faults = [each for each in error_entries(error.problem) if each.get("path")]
        if not faults:
            raise
        lines = []
        for each in faults:
            place = description.place(tuple(each["path"]))
            lines.append(": ".join(filter(None, (place, each["field"], each["message"]))))
        raise Failure("Nothing was changed.", details=lines) from None


@contextmanager
def _reserved(file: Path | None) -> Iterator[None]:
    """A new file, which only its owner can read, is there before there is something to be lost. It
    is removed when there is nothing to be written."""
    if file is None:
        yield
        return
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError as error:
        raise Failure(f"{file} cannot be made: {error.strerror}.", Exit.USAGE) from error
    try:
        yield
    except BaseException:  # Ctrl-C, too
        file.unlink(missing_ok=True)
        raise


def _without_secrets(outcome: Any) -> dict[str, Any]:
    """Takes new secrets out of an answer, so that no log has them: title → secrets."""
    made = {}
    for change in outcome["changes"]:
        if new := change.pop("new_secrets", None):
            made[f"{change['section']} {change['name']}"] = new
    return made


def _show(session: Session, outcome: Any, is_verbose: bool) -> None:
    lines = [
        line
        for change in outcome["changes"]
        if change["action"] in ("added", "changed", "removed")
        or (change["action"] == "unlisted" and (is_verbose or change.get("note")))
        for line in _lines(change)
    ]
    counts = outcome["counts"]
    words = [f"{counts.get(name, 0)} {name}" for name in ("added", "changed", "removed")]
    summary = (
        f"{', '.join(words)}, {counts.get('unchanged', 0)} unchanged, "
        f"{counts.get('unlisted', 0)} left alone that the files do not have."
    )
    _without_secrets(outcome)
    session.output.result(outcome, *lines, [summary])


def _lines(change: Mapping[str, Any]) -> Iterator[list[Part]]:
    """An object that changes, and each of its fields."""
    sign, style = _SIGNS[change["action"]]
    note = f"  ({change['note']})" if change.get("note") else ""
    yield [(f"{sign} ", style), (f"{change['section']} {change['name']}", BOLD), (note, FAINT)]
    for name, value in change.get("values", {}).items():
        yield [(f"    + {name}: {_inline(value)}", GOOD)]
    for name, each in change.get("differences", {}).items():
        yield [f"    ~ {name}: ", (_inline(each["stored"]), BAD), " → ",
               (_inline(each["sent"]), GOOD)]  # fmt: skip
    for name in change.get("secrets", ()):
        yield [(f"    {sign} {name}: (secret)", style)]


def _inline(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
