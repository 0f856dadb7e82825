"""Every type of a column, from a source to CRMs: the least, the greatest and odd values.

`docs/sources.md` has the same table. Texts are those of JSON; rows of a `sql` CRM are compared by
the server itself.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from bench.harness.mariadb import MariaDb
from crmsync.adapters.base import Record
from crmsync.adapters.outcomes import Ok
from crmsync.adapters.sql.adapter import SqlAdapter
from crmsync.policies import mapping
from crmsync.poller.reading.increment import Increment
from crmsync.poller.reading.source import Columns, Source
from tests.servers import DATABASE
from tests.support.sources import NAME, reader_url

# Type → (a literal of SQL, the value as CRMs get it). The source's zone is +08:00.
TYPES: dict[str, list[tuple[str, Any]]] = {
    "TINYINT": [("-128", -128), ("127", 127)],
    "SMALLINT UNSIGNED": [("0", 0), ("65535", 65535)],
    "INT": [("-2147483648", -(2**31)), ("2147483647", 2**31 - 1)],
    "BIGINT": [("-9223372036854775808", -(2**63)), ("9223372036854775807", 2**63 - 1)],
    "BIGINT UNSIGNED": [("18446744073709551615", 2**64 - 1)],
    "MEDIUMINT": [("-8388608", -8388608)],
    "INT(5) UNSIGNED ZEROFILL": [("7", 7)],
    "BIT(64)": [(f"b'{'1' * 64}'", 2**64 - 1), (f"b'1{'0' * 63}'", 2**63)],
    "BIT(8)": [("b'0'", 0), ("b'11111111'", 255), ("b'1000001'", 65)],
    "BOOLEAN": [("TRUE", 1), ("FALSE", 0)],
    "DECIMAL(30,10)": [
        ("0", "0.0000000000"), ("0.0000000001", "0.0000000001"),
        ("-99999999999999999999.9999999999", "-99999999999999999999.9999999999"),
    ],
    "DECIMAL(65,30)": [(f"-{'9' * 35}.{'9' * 30}", f"-{'9' * 35}.{'9' * 30}")],
    "DECIMAL(20,8)": [("0", "0.00000000"), ("19.9", "19.90000000")],
    "FLOAT": [
        ("16777216", 16777216.0), ("123456.789", 123456.79), ("1.1", 1.1), ("0.1", 0.1),
        ("-3.4028234663852886e38", -3.4028234663852886e38), ("1.17549435e-38", 1.1754944e-38),
        ("0", 0.0),
    ],
    "FLOAT(7,2)": [("19.9", 19.9), ("-99999.99", -99999.99)],
    "FLOAT UNSIGNED": [("16777217", 16777216.0)],
    "DOUBLE(10,3)": [("-1234567.891", -1234567.891)],
    "DOUBLE": [("0.1", 0.1), ("1.7976931348623157e308", 1.7976931348623157e308), ("1e-7", 1e-7)],
    "DATE": [("'1000-01-01'", "1000-01-01"), ("'9999-12-31'", "9999-12-31")],
    "DATETIME(6)": [
        ("'2026-01-31 08:00:00.123'", "2026-01-31T08:00:00.123000+08:00"),
        ("'1000-01-01 00:00:00'", "1000-01-01T00:00:00+08:00"),
        ("'9999-12-31 23:59:59.999999'", "9999-12-31T23:59:59.999999+08:00"),
    ],
    # The session that writes is at +08:00, too: the same moment, and the same text.
    "TIMESTAMP(6)": [
        ("'2026-01-31 08:00:00.123'", "2026-01-31T08:00:00.123000+08:00"),
        ("'2038-01-19 11:14:07'", "2038-01-19T11:14:07+08:00"),
    ],
    "TIME": [("'-838:59:59'", "-838:59:59"), ("'00:00:00'", "00:00:00")],
    "TIME(6)": [
        ("'-00:00:00.5'", "-00:00:00.500000"), ("'838:59:59'", "838:59:59.000000"),
        ("'01:02:03.000001'", "01:02:03.000001"),
    ],
    "YEAR": [("1901", 1901), ("2155", 2155), ("0", 0)],
    "CHAR(10)": [("'a b'", "a b")],
    "CHAR(10) CHARACTER SET gbk": [("'北京'", "北京")],
    "CHAR(10) CHARACTER SET latin1": [("'Läden €'", "Läden €")],
    "CHAR(10) CHARACTER SET utf16": [("'北京 😀'", "北京 😀")],
    "NVARCHAR(10)": [("'北京'", "北京")],
    "TINYTEXT": [("'a\\n\\tb'", "a\n\tb"), ("'a\\0b'", "a\0b")],
    "JSON": [("'{\"a\": [1, null]}'", '{"a": [1, null]}')],
    "BINARY(4)": [("'text'", "text")],
    "VARCHAR(50)": [("'😀 北京'", "😀 北京"), ("' a '", " a ")],
    "LONGTEXT": [("REPEAT('x', 70000)", "x" * 70000)],
    "ENUM('a','b')": [("'b'", "b")],
    "SET('a','b')": [("'a,b'", "a,b")],
    "VARBINARY(20)": [("'text'", "text")],
}  # fmt: skip
TYPES_OF_MARIADB: dict[str, list[tuple[str, Any]]] = {
    "UUID": [("'123e4567-e89b-12d3-a456-426655440000'", "123e4567-e89b-12d3-a456-426655440000")],
    "INET4": [("'10.0.0.255'", "10.0.0.255")],
    "INET6": [("'2001:db8::ff00:42:8329'", "2001:db8::ff00:42:8329")],
}
if DATABASE != "mysql":
    TYPES |= TYPES_OF_MARIADB
_TABLE = (
    "CREATE TABLE {name} (id INT PRIMARY KEY, v {type} NULL, version BIGINT, "
    "changed TIMESTAMP(6) DEFAULT CURRENT_TIMESTAMP(6), KEY (changed, id)) CHARACTER SET utf8mb4"
)


@pytest.fixture
def writer(foreign: Callable[..., Source], mariadb: MariaDb) -> Iterator[Any]:
    foreign()
    with closing(mariadb.connect(NAME)) as connection, connection.cursor() as cursor:
        connection.set_character_set("utf8mb4")
        cursor.execute("SET time_zone = '+08:00'")
        yield cursor


@pytest.mark.parametrize("kind", TYPES)
def test_a_value_arrives_as_it_is(kind: str, writer: Any, mariadb: MariaDb) -> None:
    for name in ("thing", "copy"):
        writer.execute(_TABLE.format(name=name, type=kind))
    literals = ["NULL", *(literal for literal, _ in TYPES[kind])]
    for number, literal in enumerate(literals):
        writer.execute(f"INSERT INTO thing (id, v) VALUES ({number}, {literal})")
    columns = Columns(key="id", update_time="changed", values=("v",))
    source = Source("thing", columns, reader_url(mariadb), zone="+08:00")
    rows = {row.key: row for row in Increment(source).rows(list(range(len(literals))))}
    fields = mapping.parse("v = v")
    values = [fields.apply(rows[number].values).get("v") for number in range(len(literals))]
    assert values == [None, *(value for _, value in TYPES[kind])]
    assert [type(value) for value in values[1:]] == [type(value) for _, value in TYPES[kind]]

    adapter = SqlAdapter(
        {"table": "copy", "key_column": "id", "version_column": "version"},
        {"url": mariadb.url(NAME)},
    )
    records = [Record(str(number), 1, {"v": value}) for number, value in enumerate(values)]
    outcomes = adapter.send(records)
    assert all(isinstance(outcome, Ok) for outcome in outcomes), outcomes
    writer.execute("SELECT id FROM thing t JOIN copy c USING (id) WHERE NOT (t.v <=> c.v)")
    assert writer.fetchall() == ()
    writer.execute("SELECT COUNT(*) FROM copy")
    assert writer.fetchone() == (len(literals),)


@pytest.mark.parametrize(
    ("source_type", "target_type", "expected"),
    [
        ("DATETIME", "TIMESTAMP", "1769817600"), ("TIMESTAMP", "TIMESTAMP", "1769817600"),
        ("DATETIME", "DATETIME", "2026-01-31 08:00:00"),
        ("TIMESTAMP", "DATETIME", "2026-01-31 08:00:00"),
        ("DATETIME", "DATE", "2026-01-31"), ("TIMESTAMP", "DATE", "2026-01-31"),
        ("DATE", "DATETIME", "2026-01-31 00:00:00"),
    ],
)  # fmt: skip
def test_a_moment_is_the_same_in_columns_of_other_types(
    source_type: str, target_type: str, expected: str, writer: Any, mariadb: MariaDb
) -> None:
    writer.execute(_TABLE.format(name="thing", type=source_type))
    writer.execute(_TABLE.format(name="copy", type=target_type))
    writer.execute("INSERT INTO thing (id, v) VALUES (1, '2026-01-31 08:00:00')")
    columns = Columns(key="id", update_time="changed", values=("v",))
    (row,) = Increment(Source("thing", columns, reader_url(mariadb), zone="+08:00")).rows([1])
    adapter = SqlAdapter(
        {"table": "copy", "key_column": "id", "version_column": "version"},
        {"url": mariadb.url(NAME)},
    )
    adapter.send([Record("1", 1, mapping.parse("v = v").apply(row.values))])
    shown = "CAST(UNIX_TIMESTAMP(v) AS UNSIGNED)" if target_type == "TIMESTAMP" else "v"
    writer.execute(f"SELECT CAST({shown} AS CHAR) FROM copy")
    assert writer.fetchone()[0] == expected


def test_a_time_before_standard_time_has_an_offset_of_whole_minutes(
    writer: Any, mariadb: MariaDb
) -> None:
    writer.execute(_TABLE.format(name="thing", type="DATETIME"))
    writer.execute("INSERT INTO thing (id, v) VALUES (1, '1900-01-01 00:00:00')")
    columns = Columns(key="id", update_time="changed", values=("v",))
    source = Source("thing", columns, reader_url(mariadb), zone="Asia/Shanghai")
    (row,) = Increment(source).rows([1])
    fields = mapping.parse("v = v").apply(row.values)
    assert fields == {"v": "1900-01-01T00:00:00+08:06"}  # the local mean time is +08:05:43


@pytest.mark.parametrize("kind", ["DATETIME", "TIMESTAMP"])
def test_the_day_of_a_time_is_that_of_the_source(kind: str, writer: Any, mariadb: MariaDb) -> None:
    """A property for a date, as HubSpot has it, refuses a time. In UTC it is the day before."""
    writer.execute(_TABLE.format(name="thing", type=kind))
    writer.execute("INSERT INTO thing (id, v) VALUES (1, '2026-01-31 00:30:00'), (2, NULL)")
    columns = Columns(key="id", update_time="changed", values=("v",))
    rows = Increment(Source("thing", columns, reader_url(mariadb), zone="+08:00")).rows([1, 2])
    days = [mapping.parse("day = v.date or null").apply(row.values) for row in rows]
    assert days == [{"day": "2026-01-31"}, {"day": None}]
