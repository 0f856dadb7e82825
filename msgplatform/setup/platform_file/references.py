"""References in the place of secrets: `${NAME}`, a variable of the environment, and `file:NAME`, a
file of the folder for secrets. A secret itself does not belong in a file that is kept in a
repository, and is refused there."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgplatform import env
from msgplatform.core.errors import Undecryptable
from msgplatform.core.secrets import encryption
from msgplatform.setup.platform_file import text

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_FILE = "file:"
_FILE_REFERENCE = re.compile(r"file:\S+")
_MAX_BYTES = 64 * 1024
ReadSecret = Callable[[str], str]  # the secret that a text refers to. Raises ValueError


def is_reference(value: Any) -> bool:
    """True if a value has the form of a reference, as only secrets have it."""
    is_text = isinstance(value, str)
    return is_text and bool(_VARIABLE.search(value) or _FILE_REFERENCE.fullmatch(value))


class WrongReference(Exception):
    """A reference that cannot be resolved; `path` leads to it from the field."""

    def __init__(self, path: text.Path, message: str) -> None:
        super().__init__(message)
        self.path = path


def resolve(value: Any, read_secret: ReadSecret, path: text.Path = ()) -> Any:
    """The value with the secrets in it. Raises WrongReference for the first text that cannot be
    read as one."""
    if isinstance(value, dict):
        return {name: resolve(part, read_secret, (*path, name)) for name, part in value.items()}
    if isinstance(value, list):
        return [resolve(part, read_secret, (*path, index)) for index, part in enumerate(value)]
    if not isinstance(value, str):
        return value
    try:
        return read_secret(value)
    except ValueError as error:
        raise WrongReference(path, str(error)) from None


def read_sent(value: str) -> str:
    """A secret as it is, in a file that a client sends. References would lead to the environment
    and the files of the server, which are none of the client's."""
    if value.startswith(_FILE) or _VARIABLE.search(value):
        raise ValueError(
            "The server reads no references, ${NAME} or file:NAME: send the secret itself, as "
            "msgp apply does."
        )
    return value


def read_sealed(value: str) -> str:
    """A secret that another cell has encrypted with a key that is in ENCRYPTION_KEY here, too."""
    if not encryption.is_encrypted(value):
        raise ValueError("The secret is not encrypted.")
    try:
        return encryption.decrypt(value)
    except Undecryptable as error:
        raise ValueError(str(error)) from None


@dataclass(frozen=True)
class Secrets:
    """Where references lead: the environment, and the folder that holds secrets, if any."""

    environment: Mapping[str, str]
    folder: Path | None = None

    def read(self, value: str) -> str:
        """The secret that a reference names. Raises ValueError."""
        if value.startswith(_FILE):
            return self._content(value.removeprefix(_FILE))
        if not _VARIABLE.search(value):
            raise ValueError(
                "A secret does not belong in a file: write ${NAME}, a variable of the environment, "
                "or file:NAME, a file of the folder --secrets."
            )
        return _VARIABLE.sub(lambda match: self._variable(match[1]), value)

    def _variable(self, name: str) -> str:
        # The platform's own settings are refused: a file's author may not be allowed to read them.
        if name in env.variable_names or name.removesuffix("_FILE") in env.variable_names:
            raise ValueError(f"{name} is a setting of the platform itself: use another variable.")
        value = self.environment.get(name, "")
        if not value:
            raise ValueError(f"The environment has no variable {name}.")
        return value

    def _content(self, name: str) -> str:
        if self.folder is None:
            raise ValueError("Name the folder that holds secrets: --secrets FOLDER.")
        folder = self.folder.resolve()
        try:
            path = (folder / name).resolve()
            if not path.is_relative_to(folder):
                raise ValueError(f"{name} is not in the folder {self.folder}.")
            with path.open("rb") as stream:
                content = stream.read(_MAX_BYTES + 1)
        except OSError as error:
            raise ValueError(f"{name} cannot be read: {error.strerror}.") from None
        if len(content) > _MAX_BYTES:
            raise ValueError(f"{name} has more than {_MAX_BYTES} bytes.")
        try:
            return content.decode("utf-8-sig").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            raise ValueError(f"{name} is not UTF-8.") from None
