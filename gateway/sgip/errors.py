"""The errors of frames, fields, texts and calls, and their consequences.

    SgipError
    ├── FrameError          closes   the stream can no longer be cut into frames
    │   ├── TruncatedFrame           fewer bytes than Message Length says, or than a header has
    │   └── OverlongFrame            more bytes than Message Length says, or than are accepted
    ├── UnknownCommand      closes   a command id that the specification does not have
    ├── BodyError           closes   the body does not have the length of its command
    │   ├── TruncatedBody
    │   └── OverlongBody
    ├── UnservedCommand     stays    a command between gateways, or for the other role
    ├── FieldError          stays    a value that its field cannot hold
    ├── DuplicateSequence   stays    the sequence of an earlier command, with another content
    ├── TextError           stays    a text that cannot be sent without loss, or is too long
    └── SessionError        stays    a call that the session's state does not allow
        ├── NotBound
        ├── WindowFull
        └── SequenceInUse

`closes` says whether the connection must be closed (§3.7.2.4.2), `result` which Result answers the
command in question, as far as its header could be read.
"""

from .constants import Result


class SgipError(Exception):
    """Root of all errors of this package."""

    # Subclasses set only the attributes that differ.
    closes = False
    result = int(Result.PARAMETER)


class FrameError(SgipError):
    """The stream can no longer be cut into frames."""

    closes = True
    result = int(Result.LENGTH)


class TruncatedFrame(FrameError):
    """Fewer bytes than Message Length says, or than a header has."""


class OverlongFrame(FrameError):
    """More bytes than Message Length says, or than are accepted."""


class UnknownCommand(SgipError):
    """A command id that the specification does not have."""

    closes = True
    result = int(Result.COMMAND)


class BodyError(SgipError):
    """The body does not have the length of its command."""

    closes = True
    result = int(Result.LENGTH)


class TruncatedBody(BodyError):
    """The body is shorter than its command's."""


class OverlongBody(BodyError):
    """The body is longer than its command's."""


class UnservedCommand(SgipError):
    """A valid command that this side does not serve: it gets a response with an error Result."""

    result = int(Result.COMMAND)


class FieldError(SgipError):
    """A value that its field cannot hold; `field` is its name in snake_case."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class DuplicateSequence(SgipError):
    """The sequence of an earlier command, with another content."""

    result = int(Result.SEQUENCE)


class TextError(SgipError):
    """A text that cannot be sent without loss, or that needs more parts than there can be."""


class SessionError(SgipError):
    """A call that the session's state does not allow."""


class NotBound(SessionError):
    """Commands can be sent only between the answer to Bind and Unbind."""


class WindowFull(SessionError):
    """As many commands as the window allows wait for their responses."""


class SequenceInUse(SessionError):
    """A command with this sequence already waits for its response."""
