"""The entries of platform files: which objects, with which bodies, and where each value stands.

msgplatform: 1
systems:
  orders:
    title: Order service
subscriptions:
  orders/warehouse:
    event_types: [order.*]
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from msgplatform.core.json.values import MAX_STORED_DEPTH, depth, levels
from msgplatform.setup.fields import fields_of
from msgplatform.setup.platform_file import kinds, references, text
from msgplatform.setup.platform_file.kinds import Kind
from msgplatform.setup.platform_file.outcome import Fault, FileFaults
from msgplatform.setup.platform_file.references import ReadSecret

VERSION = 1
VERSION_KEY = "msgplatform"
_SUFFIXES = {".yaml", ".yml"}
_MAX_FILES = 1000
# A search for the name that was meant takes a fraction of a millisecond, and a file may have
# MAX_NODES faults.
_MAX_FAULTS_WITH_CHOICES = 200


class Entry(msgspec.Struct):
    """An object as a file describes it. `lines` has the line of each value of the body."""

    kind: Kind
    address: dict[str, str]
    body: dict[str, Any]
    file: str
    lines: Mapping[text.Path, int] = msgspec.field(default_factory=dict)

    @property
    def section(self) -> str:
        return kinds.section_of(self.kind)

    @property
    def name(self) -> str:
        return kinds.name_of(self.address)

    def fault(self, path: text.Path, message: str) -> Fault:
        """A fault of a value of the body; it has the line of the nearest value that is there."""
        beginnings = (path[:end] for end in range(len(path), -1, -1))
        line = next((self.lines[part] for part in beginnings if part in self.lines), 0)
        names = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
        whole_path = (self.section, self.name, *path)
        return Fault(self.file, line, f"{self.section}.{self.name}{names}", message, whole_path)


class Description(msgspec.Struct):
    """The content of files together: entries, and the sections that are there, empty ones too."""

    entries: list[Entry] = msgspec.field(default_factory=list)
    sections: set[str] = msgspec.field(default_factory=set)


def read_files(paths: Iterable[Path], read_secret: ReadSecret) -> Description:
    """The entries of all files and folders. Raises FileFaults."""
    reader = _Reader(read_secret)
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        # Files with YAML's endings, in order; links to folders are not followed.
        members = sorted(
            Path(folder, name)
            for folder, _folders, names in os.walk(path)
            for name in names
            if Path(name).suffix in _SUFFIXES and not name.startswith(".")
        )
        if not members:
            words = "There is no *.yaml or *.yml in this folder."
            reader.faults.append(Fault(str(path), 0, "", words))
        files += members
    if len(files) > _MAX_FILES:
        reader.faults.append(Fault("", 0, "", f"More than {_MAX_FILES} files."))
        files = []
    for path in files:
        try:
            with path.open("rb") as stream:
                content = text.read(stream.read(text.MAX_BYTES + 1))
        except OSError as error:
            words = f"It cannot be read: {error.strerror}."
            reader.faults.append(Fault(str(path), 0, "", words))
        except text.TextFault as error:
            reader.faults.append(_fault_of_text(str(path), error))
        else:
            reader.read(str(path), content)
    return reader.description()


def read_sent(content: text.Text) -> Description:
    """The entries of a file that a client has sent, with its secrets as they are. Raises
    FileFaults."""
    reader = _Reader(references.read_sent)
    reader.read("", content)
    return reader.description()


def read_exported(content: text.Text) -> Description:
    """The entries of a file that another cell has written, with encrypted secrets and without
    references: ${NAME} in a description is a text. Raises FileFaults."""
    reader = _Reader(references.read_sealed, has_references=False)
    reader.read("", content)
    return reader.description()


def parse_sent(content: bytes, max_bytes: int) -> text.Text:
    """The YAML text that a client has sent. Raises FileFaults."""
    try:
        return text.read(content, max_bytes)
    except text.TextFault as error:
        raise FileFaults([_fault_of_text("", error)]) from None


def parse_sent_json(value: Any) -> text.Text:
    """The JSON text that a client has sent, without lines; `value` is its value. Raises FileFaults
    for more values than a YAML text may have."""
    if sum(map(len, levels(value))) > text.MAX_NODES:
        raise FileFaults([Fault("", 0, "", text.TOO_MANY)])
    return text.Text(value)


def _fault_of_text(file: str, error: text.TextFault) -> Fault:
    return Fault(file, error.line, ".".join(map(str, error.path)), error.message, error.path)


class _Reader:
    """Collects the entries of texts, and their faults."""

    def __init__(self, read_secret: ReadSecret, *, has_references: bool = True) -> None:
        self._read_secret, self._has_references = read_secret, has_references
        self.faults: list[Fault] = []
        self._entries: dict[tuple[Kind, str], Entry] = {}
        self._sections: set[str] = set()

    def description(self) -> Description:
        """Everything that was read. Raises FileFaults."""
        if self.faults:
            raise FileFaults(self.faults)
        return Description(list(self._entries.values()), self._sections)

    def read(self, file: str, content: text.Text) -> None:
        """Read the text of a file; `file` is its name for people."""
        self._file, self._content = file, content
        self._lines: dict[text.Path, dict[text.Path, int]] = defaultdict(dict)  # by entry
        for path, line in content.lines.items():
            if len(path) > 1:
                self._lines[path[:2]][path[2:]] = line
        value = content.value
        if value is None:
            return
        if not isinstance(value, dict):
            self._add((), "A platform file is a mapping of sections.")
            return
        version = value.get(VERSION_KEY)
        version = VERSION if version is None else version
        if version != VERSION or isinstance(version, bool):
            words = (
                f"The file is of form {version}, and this release reads form {VERSION}: it was "
                "written for another release of the platform."
            )
            self._add((VERSION_KEY,), words)
            return
        sections = kinds.sections()
        for section, objects in value.items():
            if section == VERSION_KEY:
                continue
            if section not in sections:
                words = f"There is no such section.{self._choices(section, sections)}"
                self._add((section,), words)
                continue
            self._sections.add(section)
            if objects is not None and not isinstance(objects, dict):
                self._add((section,), "A section is a mapping of names.")
                continue
            for name, body in (objects or {}).items():
                self._read_entry(section, name, body)

    def _read_entry(self, section: str, name: str, body: Any) -> None:
        path = (section, name)
        try:
            kind, address = kinds.parse_name(section, name)
        except ValueError as error:
            self._add(path, str(error))
            return
        if body is not None and not isinstance(body, dict):
            self._add(path, "An entry is a mapping of fields.")
            return
        entry = Entry(kind, address, body or {}, self._file, self._lines[path])
        key = kind, entry.name
        if (earlier := self._entries.get(key)) is not None:
            place = f"{earlier.file}:{earlier.lines.get((), 0)}"
            self._add(path, f"It is there already, in {place}.")
            return
        self._entries[key] = entry
        fields = fields_of(kind.serializer_class)
        writable_names = sorted(
            field_name for field_name, field in fields.items() if not field.read_only
        )
        for field_name, value in entry.body.items():
            field_path: text.Path = (field_name,)
            if field_name not in fields:
                words = f"There is no such field.{self._choices(field_name, writable_names)}"
            elif depth(value) > MAX_STORED_DEPTH:
                words = f"This is nested more than {MAX_STORED_DEPTH} levels deep."
            elif fields[field_name].source in kind.secret_fields:
                try:
                    entry.body[field_name] = references.resolve(value, self._read_secret)
                    continue
                except references.WrongReference as error:
                    field_path, words = (field_name, *error.path), str(error)
            elif self._has_references and references.is_reference(value):
                words = "References are read in secret fields only, and this is none."
            else:
                continue
            self.faults.append(entry.fault(field_path, words))

    def _add(self, path: text.Path, message: str) -> None:
        line = self._content.lines.get(path, 1 if self._content.lines else 0)
        place = ".".join(map(str, path))
        self.faults.append(Fault(self._file, line, place, message, path))

    def _choices(self, name: str, known_names: Iterable[str]) -> str:
        """A sentence with the name that was probably meant, or with all names, after a blank; ''
        for the faults after the first ones."""
        if len(self.faults) >= _MAX_FAULTS_WITH_CHOICES:
            return ""
        names_by_lower = {known_name.lower(): known_name for known_name in known_names}
        if close_names := get_close_matches(name.lower(), names_by_lower, 1, 0.75):
            return f" Did you mean {names_by_lower[close_names[0]]}?"
        return f" Use one of: {', '.join(names_by_lower.values())}."
