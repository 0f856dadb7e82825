"""Node ids, sequences and telephone numbers, as SGIP writes them (§3.3, §3.4, §4.2.2).

A sequence is node id, MMDDhhmmss as a decimal number, and a counter; it is unique within a year.
"""

from datetime import datetime, timedelta, timezone

from .fields import SequenceNumber

_WORD = 1 << 32
# The operator's clock, in whatever time zone this machine is. China has no summer time.
_OPERATOR = timezone(timedelta(hours=8))
_AREA = (2, 4)  # digits of an area code with its leading 0
_COUNTRY = "86"
_MOBILE = 11  # digits of a mobile number, the first of which is 1


def sp_node_id(area: str, corp_id: str | int) -> int:
    """The node id of an SP: 3, the area code ("010", "0731"), then the five digits of its CorpId.

    Raises ValueError for an area code without its leading 0, and for more than five digits.
    """
    corp = f"{int(corp_id):05d}"
    if not _is_area(area) or len(corp) > 5 or "-" in corp:
        raise ValueError(f"no SP has area code {area!r} and CorpId {corp_id!r}")
    return int(f"3{area:0<4}{corp}")


def smg_node_id(area: str, number: int) -> int:
    """The node id of an SMG: 1, the area code, one digit that tells the area's SMGs apart.

    Raises ValueError for an area code without its leading 0, and for more than a digit.
    """
    if not _is_area(area) or not 0 <= number <= 9:
        raise ValueError(f"no SMG has area code {area!r} and number {number}")
    return int(f"1{area:0<4}{number}")


def _is_area(area: str) -> bool:
    digits = area.isascii() and area.isdigit() and area.startswith("0")
    return digits and _AREA[0] <= len(area) <= _AREA[1]


def timestamp(moment: datetime) -> int:
    """MMDDhhmmss of a moment on the operator's clock, UTC+8; the moment has a time zone."""
    moment = moment.astimezone(_OPERATOR)
    days = moment.month * 100 + moment.day
    return ((days * 100 + moment.hour) * 100 + moment.minute) * 100 + moment.second


def absolute_time(moment: datetime) -> str:
    """ExpireTime or ScheduleTime: yymmddhhmmss in UTC+8, then tenths and zone."""
    # 0 tenths of a second, then the offset from UTC in quarters of an hour: 32 of them, ahead.
    return moment.astimezone(_OPERATOR).strftime("%y%m%d%H%M%S") + "032+"


class SequenceSource:
    """Makes the sequences of one node id, with counters from `start`.

    A process that starts again within a second must begin above its last counter.
    """

    def __init__(self, node: int, start: int = 0) -> None:
        if not 0 <= node < _WORD or start < 0:
            raise ValueError("a node id has 32 bits, and a counter is not negative")
        self._node, self._counter = node, start

    def next(self, moment: datetime) -> SequenceNumber:
        """The next sequence; the counter wraps within 32 bits."""
        return self.take(1, moment)[0]

    def take(self, count: int, moment: datetime) -> list[SequenceNumber]:
        """The next `count` sequences, with one time."""
        stamp, first = timestamp(moment), self._counter
        self._counter = (first + count) % _WORD
        return [(self._node, stamp, (first + n) % _WORD) for n in range(count)]


def spellings(number: str) -> tuple[str, ...]:
    """A number as a gateway may write it elsewhere: as it is, with 86 in front, without it."""
    others = (number[len(_COUNTRY) :],) if number.startswith(_COUNTRY) else ()
    return (number, _COUNTRY + number, *others)


def international(number: str) -> str:
    """A telephone number as SGIP has it: `86` in front, no plus. Other numbers than Chinese mobile
    numbers keep their digits."""
    text = _without_signs(number)
    digits = text.removeprefix("+").removeprefix("00")
    # After + or 00 the number begins with a country code: 1 is North America's.
    is_mobile = digits == text and len(digits) == _MOBILE and digits.startswith("1")
    return _COUNTRY + digits if is_mobile else digits


def searched_numbers(text: str) -> tuple[str, ...]:
    """The numbers that a text in a search may mean: the number that `international` reads, and for
    a Chinese mobile number without 86 also the foreign number with the same stored digits."""
    number, digits = international(text), _without_signs(text)
    return (number, digits) if number == _COUNTRY + digits else (number,)


def written_form(number: str) -> str:
    """The text that `international` reads as this number: its digits, with a plus for a foreign
    number that looks like a Chinese mobile number."""
    return number if international(number) == number else f"+{number}"


def _without_signs(number: str) -> str:
    return number.strip().replace(" ", "").replace("-", "")
