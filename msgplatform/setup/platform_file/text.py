"""YAML in bounds, with the line of every value; and values as YAML.

Only JSON's types: mappings with text keys, sequences, texts, numbers, true, false and null. Tags,
anchors and aliases are refused, so that a small file cannot become a large value. Plain words are
read as YAML 1.2 has them, as editors do: `no` and `2026-11-20` are texts.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec
import yaml

from msgplatform.core.json.values import MAX_STORED_DEPTH

MAX_BYTES = 1024 * 1024  # maximum bytes of one file
MAX_NODES = 100_000
TOO_MANY = f"The file has more than {MAX_NODES} values: divide it."
_MAX_DEPTH = MAX_STORED_DEPTH + 3  # maximum depth of a value below file, section and entry

Path = tuple[str | int, ...]


class TextFault(Exception):
    """The fault of a text; `line` is counted from 1."""

    def __init__(self, line: int, message: str, path: Path = ()) -> None:
        super().__init__(message)
        self.line, self.message, self.path = line, message, path


class Text(msgspec.Struct):
    """The value of a text, and the line of each value within it by its path."""

    value: Any
    lines: dict[Path, int] = msgspec.field(default_factory=dict)


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    yaml_implicit_resolvers: dict[str, Any] = {}


class _Dumper(yaml.SafeDumper):
    """Quotes what YAML 1.1 or YAML 1.2 would not read as text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_KINDS = (
    ("null", r"null|Null|NULL|~|", "nN~\0"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"-?(?:0|[1-9][0-9]*)", "-0123456789"),
    ("float", r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?", "-0123456789"),
)
_TAG = "tag:yaml.org,2002:"
for _name, _pattern, _first in _KINDS:
    for _class in (_Loader, _Dumper):
        _firsts = ["" if letter == "\0" else letter for letter in _first]
        _class.add_implicit_resolver(_TAG + _name, re.compile(f"^(?:{_pattern})$"), _firsts)


_BREAKS = re.compile("[\x85\u2028\u2029]")


def _represent_text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    """Escape line ends that JSON does not have: YAML would read them as other characters."""
    style = '"' if _BREAKS.search(value) else None
    return dumper.represent_scalar(f"{_TAG}str", value, style)


_Dumper.add_representer(str, _represent_text)


def read(content: bytes, max_bytes: int = MAX_BYTES) -> Text:
    """The value of a YAML text. Raises TextFault."""
    if len(content) > max_bytes:
        raise TextFault(1, f"A file has at most {max_bytes} bytes: divide it into several files.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise TextFault(line, "This is not UTF-8.") from None
    try:
        _refuse_more_than_json(text)
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "this is not YAML"
        raise TextFault(mark.line + 1 if mark else 1, f"This is not YAML: {problem}.") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise TextFault(line, "A control character: YAML has none.") from None
    result = Text(None)
    if node is not None:
        result.value = _value(node, (), result.lines)
    return result


def write(value: Any) -> str:
    """A value as YAML, members in their order."""
    return yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100, indent=2
    )


def write_inline(value: Any) -> str:
    """A value as YAML in one line."""
    style = '"' if isinstance(value, str) and "\n" in value else None
    written = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=True, default_style=style, sort_keys=False,
        allow_unicode=True, width=float("inf"),
    )  # fmt: skip
    return str(written).removesuffix("\n").removesuffix("\n...")


def _refuse_more_than_json(text: str) -> None:
    """Refuse tags, anchors and aliases, and texts that are too deep or too large to be read."""
    depth = documents = 0
    events: Iterable[Any] = yaml.parse(text, Loader=_Loader)
    for count, event in enumerate(events):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise TextFault(line, "Anchors and aliases (&, *) are not read: write the value out.")
        # A quoted text has no tag; only a tag that is written is refused, `!` too.
        if getattr(event, "tag", None):
            raise TextFault(line, f"Tags are not read: leave {event.tag} out.")
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise TextFault(line, "A second document begins here: a file has one.")
        if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            depth += 1
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            depth -= 1
        if depth > _MAX_DEPTH:
            raise TextFault(line, f"This is nested more than {_MAX_DEPTH} levels deep.")
        if count >= MAX_NODES:
            raise TextFault(line, TOO_MANY)


def _value(node: yaml.Node, path: Path, lines: dict[Path, int]) -> Any:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        members: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise TextFault(line, "A key is a text.", path)
            key = key_node.value
            if key in members:
                first = lines[(*path, key)]
                raise TextFault(line, f"{key} is there already, in line {first}.", (*path, key))
            lines[(*path, key)] = line
            members[key] = _value(value_node, (*path, key), lines)
        return members
    if isinstance(node, yaml.SequenceNode):
        return [_value(part, (*path, index), lines) for index, part in enumerate(node.value)]
    kind, text = node.tag.removeprefix(_TAG), str(node.value)
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    if kind not in ("int", "float"):
        return text
    line = node.start_mark.line + 1
    try:
        number: int | float = int(text) if kind == "int" else float(text)
    except ValueError:  # Python reads no numbers of more than 4300 digits
        raise TextFault(line, "This number is too long.", path) from None
    if number in (float("inf"), float("-inf")):
        raise TextFault(line, "This number is too large.", path)
    return number
