"""Remembers commands, so that a repeated command is taken only once (§3.7.2.4.3)."""

from ..constants import RETRY_RESULTS, Result

UNANSWERED = -1


class Duplicates:
    """The last `capacity` to 2 × `capacity` commands of one peer, by their sequence.

    Connections of the same peer share one memory, because a command without a response may be sent
    again over the next connection. Two generations are kept instead of ages: when the younger one
    is full, the older one is forgotten.
    """

    def __init__(self, capacity: int = 4096) -> None:
        self._capacity = capacity
        self._young: dict[bytes, int] = {}  # sequence: hash of the frame
        self._old: dict[bytes, int] = {}
        self._unanswered: set[bytes] = set()
        self._refused: dict[bytes, int] = {}  # responses' Results other than 0

    def admit(self, frame: bytes) -> int | None:
        """None for a new command, which is remembered.

        For a command that came before: UNANSWERED, or the Result of its response; for another
        command under the same sequence Result.SEQUENCE.
        """
        # A hash is enough: a peer that makes its commands collide harms only itself.
        key, fingerprint = frame[8:20], hash(frame)
        known_fingerprint = self._young.get(key)
        if known_fingerprint is None:
            known_fingerprint = self._old.get(key)
        if known_fingerprint is None:
            if len(self._young) >= self._capacity:  # forget the older generation
                self._unanswered.difference_update(self._old)
                for old in self._refused.keys() & self._old.keys():
                    del self._refused[old]
                self._old, self._young = self._young, {}
            self._young[key] = fingerprint
            self._unanswered.add(key)
            return None
        if known_fingerprint != fingerprint:
            return int(Result.SEQUENCE)
        return UNANSWERED if key in self._unanswered else self._refused.get(key, 0)

    def answered(self, key: bytes, result: int) -> None:
        """The command with this sequence (12 bytes) got a response.

        A command that the peer is to repeat later is forgotten, so that it is taken then.
        """
        self._unanswered.discard(key)
        if not result:
            return
        if result in RETRY_RESULTS:
            self._young.pop(key, None)
            self._old.pop(key, None)
        elif key in self._young or key in self._old:
            self._refused[key] = result
