"""Platform files: the files of a repository as one value, with the line of each value.

Words are read as YAML 1.2 has them (`no` is a text), and tags and aliases are refused, as the
platform does.
Secrets stand in the files by reference: `${NAME}`, a variable of this environment, or `file:NAME`,
a file of the folder for secrets. They are put in here, so that only the request has them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from .exits import Exit, Failure

# As the API has them: a name in a section, then a field.
SECRET_FIELDS: Mapping[str, frozenset[str]] = {
    "alert-channels": frozenset({"url"}),
    "consumers": frozenset({"headers"}),
    "crms": frozenset({"credentials"}),
    "sms/gateways": frozenset({"login_password", "smg_login_password"}),
    "sources": frozenset({"database"}),
}
_VERSION_KEY = "msgplatform"
_SUFFIXES = {".yaml", ".yml"}
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_KINDS = (
    ("null", r"null|Null|NULL|~|", "nN~\0"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"-?(?:0|[1-9][0-9]*)", "-0123456789"),
    ("float", r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?", "-0123456789"),
)
_Path = tuple[str | int, ...]


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, Any] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "tag", None):
            raise yaml.MarkedYAMLError(
                problem="anchors, aliases and tags are not read", problem_mark=event.start_mark
            )
        node = super().compose_node(parent, index)
        if isinstance(parent, yaml.MappingNode) and index is None:
            if not isinstance(node, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a key is a text", problem_mark=event.start_mark)
            node.tag = "tag:yaml.org,2002:str"  # 1.10 too
        return node


for _name, _pattern, _firsts in _KINDS:
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_name}",
        re.compile(f"^(?:{_pattern})$"),
        ["" if each == "\0" else each for each in _firsts],
    )


@dataclass
class Description:
    """All files together: section → name → body, and the place of each value by its path."""

    value: dict[str, Any] = field(default_factory=lambda: {_VERSION_KEY: 1})
    places: dict[_Path, str] = field(default_factory=dict)

    def place(self, path: _Path) -> str:
        """`file:line` of the value, or of what it is in; '' when no file has that."""
        ends = range(len(path), 0, -1)
        return next((self.places[path[:end]] for end in ends if path[:end] in self.places), "")


def read(paths: list[Path], secrets: Path | None) -> Description:
    """The content of all files and folders, secrets put in. Raises Failure."""
    description = Description()
    for path in _files(paths):
        value, lines = _parsed(path)
        if not isinstance(value, dict):
            raise Failure(f"{path}: a platform file is a mapping of sections.", Exit.USAGE)
        description.places |= {each: f"{path}:{line}" for each, line in lines.items() if each}
        _merge(description, value, path, lines)
    for section, names in SECRET_FIELDS.items():
        objects = description.value.get(section)
        # The platform reports a section in another form, with its line.
        for name, body in objects.items() if isinstance(objects, dict) else ():
            for each in names & body.keys() if isinstance(body, dict) else ():
                place = description.place((section, name, each))
                body[each] = _resolved(body[each], secrets, place)
    return description


def parse(text: str) -> Any:
    """The value of a platform file's text."""
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader


def _files(paths: list[Path]) -> Iterator[Path]:
    """All files; of a folder those that end as YAML does, in order."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        files = sorted(
            each
            for each in path.rglob("*")
            if each.suffix in _SUFFIXES and not each.name.startswith(".") and each.is_file()
        )
        if not files:
            raise Failure(f"{path}: there is no *.yaml or *.yml in this folder.", Exit.USAGE)
        yield from files


def _parsed(path: Path) -> tuple[Any, dict[_Path, int]]:
    """The value of a file, {} of an empty one, and the line of each value by its path."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
        node = yaml.compose(text, Loader=_Loader)
        lines = dict(_lines(node, ())) if node else {}
        value = parse(text) or {}
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror}.", Exit.USAGE) from error
    except UnicodeDecodeError:
        raise Failure(f"{path} is not UTF-8.", Exit.USAGE) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{path}:{mark.line + 1 if mark else 1}"
        raise Failure(f"{place}: this is not YAML: {error.problem}.", Exit.USAGE) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # numbers may be too long
        raise Failure(f"{path}: this is not YAML: {error}.", Exit.USAGE) from None
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise Failure(f"{path}: a number is too large for JSON.", Exit.USAGE) from None
    return value, lines


def _lines(node: yaml.Node, path: _Path) -> Iterator[tuple[_Path, int]]:
    yield path, node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        names = set()
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.value in names:
                raise yaml.MarkedYAMLError(
                    problem=f"{key.value} is listed twice", problem_mark=key.start_mark
                )
            names.add(key.value)
            yield from _lines(value, (*path, str(key.value)))
            yield (*path, str(key.value)), line
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _lines(value, (*path, index))


def _merge(
    description: Description, value: Mapping[Any, Any], path: Path, lines: Mapping[_Path, int]
) -> None:
    """Add the entries of a file. Raises Failure for one that another file has, and for a section
    that is no mapping there."""
    for section, objects in value.items():
        entries = description.value.get(section)
        if section == _VERSION_KEY or (entries is None and not isinstance(objects, dict | None)):
            description.value[section] = objects
            continue
        if not isinstance(entries, dict | None) or not isinstance(objects, dict | None):
            place = f"{path}:{lines.get((section,), 1)}"
            raise Failure(f"{place}: {section} has another form in another file.", Exit.USAGE)
        entries = description.value[section] = entries or {}
        for name, body in (objects or {}).items():
            if name in entries:
                place = f"{path}:{lines.get((section, name), 1)}"
                raise Failure(f"{place}: {section} {name} is listed twice.", Exit.USAGE)
            entries[name] = body


def _resolved(value: Any, secrets: Path | None, place: str) -> Any:
    """The value of a secret field, its references resolved. Raises Failure."""
    if isinstance(value, dict):
        return {name: _resolved(each, secrets, place) for name, each in value.items()}
    if isinstance(value, list):
        return [_resolved(each, secrets, place) for each in value]
    if not isinstance(value, str):
        return value
    if value.startswith("file:"):
        return _content(value.removeprefix("file:"), secrets, place)
    if not _VARIABLE.search(value):
        words = "a secret does not belong in a file: write ${NAME}, a variable of the environment, "
        raise Failure(f"{place}: {words}or file:NAME, a file of the folder --secrets.", Exit.USAGE)
    return _VARIABLE.sub(lambda match: _variable(match[1], place), value)


def _variable(name: str, place: str) -> str:
    # Whoever writes the files must not get the key of whoever applies them.
    if name.startswith("MSGP_"):
        raise Failure(f"{place}: {name} is a variable of msgp itself.", Exit.USAGE)
    value = os.environ.get(name, "")
    if not value:
        raise Failure(f"{place}: the environment has no variable {name}.", Exit.USAGE)
    return value


def _content(name: str, secrets: Path | None, place: str) -> str:
    if secrets is None:
        raise Failure(f"{place}: name the folder that holds secrets: --secrets FOLDER.", Exit.USAGE)
    file = (secrets / name).resolve()
    if not file.is_relative_to(secrets.resolve()):
        raise Failure(f"{place}: {name} is not in the folder {secrets}.", Exit.USAGE)
    try:
        return file.read_text(encoding="utf-8-sig").removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise Failure(f"{place}: {name} cannot be read: {reason}.", Exit.USAGE) from None
