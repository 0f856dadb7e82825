"""Personal data, masked for those who need not know whose it is."""

from typing import Any

import pytest

from msgplatform.core import personal


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("13812345678", "138****5678"),
        ("+44 20 7946 0958", "442****0958"),
        (13812345678, "138****5678"),
        ("6543210", "6****10"),
        ("0519-8654321", "051****4321"),
        (-1234567, "1****67"),
        (31.23041, "3****41"),
        ("wang.xiaoming@example.com", "w****@example.com"),
        ("王小明", "王****"),
        ("Ann Lee", "A****"),
        ("call 13812345678 or ann@example.com", "c****"),
        ("Wang Xiaoming 13812345678, Chaoyang Rd 5, code 4821", "W****"),
        ("王小明 13812345678", "王****"),
        ("ann@example.com王小明", "a****"),
        (41, 41),
        (3.5, 3.5),
        (True, True),
        (None, None),
        ("", ""),
        (["王小明", 1], ["王****", 1]),
        ({"a": {"b": "13812345678"}}, {"a": {"b": "138****5678"}}),
    ],
)
def test_values_keep_their_shape(value: Any, shown: Any) -> None:
    assert personal.mask_value(value) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Contact ann@example.com already exists", "Contact a****@example.com already exists"),
        ("Data too long for column 'phone' at row 1", "Data too long for column 'phone' at row 1"),
        ("138 1234 5678 is no number", "138****5678 is no number"),
        ("手机号13812345678已存在", "手机号138****5678已存在"),
        ("phone_13812345678_2", "phone_138****5678_2"),
        ("order-a13812345678", "order-a13812345678"),
        ("HTTP 429 after 30 s, at 2026-11-22", "HTTP 429 after 30 s, at 2026-11-22"),
        ("no record 250201404226577152", "no record 250201404226577152"),
        ("duplicate 'a.b+c@mail.example.org'", "duplicate 'a****@mail.example.org'"),
    ],
)
def test_sentences_stay_sentences(text: str, shown: str) -> None:
    assert personal.mask_sentence(text) == shown


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("wx13800138000", "wx138****8000"),
        ("ann@example.com", "a****@example.com"),
        ("250201404226577152", "250201404226577152"),
        ("order-123456", "order-123456"),
    ],
)
def test_keys(key: str, shown: str) -> None:
    assert personal.mask_key(key) == shown


def test_the_texts_of_a_filter() -> None:
    given = {
        "number": "13812345678",
        "since": "2026-11-23T08:00:00+08:00",
        "ids": ["7" * 18],
        "n": 3,
    }
    assert personal.mask_sentences(given) == given | {"number": "138****5678"}


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ('{"card": "4111", "paid": true}', '{\n  "card": "4****",\n  "paid": true\n}'),
        ("Your code is 123456", "**** (19)"),
        ('{"note": "Ann Lee 13812345678, code 4821"}', '{\n  "note": "A****"\n}'),
        ('{"cut": "off', "**** (12)"),
        ("[" * 2000, "**** (2000)"),
        ("[" * 300 + "]" * 300, "**** (600)"),
        ("", ""),
    ],
)
def test_a_content_of_its_own(content: str, shown: str) -> None:
    assert personal.mask_content(content) == shown
