import json
import time

import pytest

from msgplatform.core.json.text import pretty, with_raw
from msgplatform.core.json.values import RepeatedName, object_of

MOST = 10_000


def test_letters_are_shown_and_numbers_stay() -> None:
    text = r'{"名":"\u4f60\u597d \"x\" \\u4f60","n":1.10,"big":123456789012345678901,"e":1e400}'
    assert pretty(text, MOST) == (
        '{\n  "名": "你好 \\"x\\" \\\\u4f60",\n  "n": 1.10,\n'
        '  "big": 123456789012345678901,\n  "e": 1e400\n}'
    )


NESTED = "[" * 5000
NO_JSON = ["", "no JSON: \\u4f60", '{"a":', "<html>", '{"a":1} {', NESTED]


@pytest.mark.parametrize("text", [*NO_JSON, f"{NESTED}{']' * 5000}"])
def test_what_is_no_json_stays(text: str) -> None:
    assert pretty(text, MOST) == text


@pytest.mark.parametrize("letter", ["\\u202e", "\\u0000", "\\u0007", "\\u200b"])
def test_what_could_mislead_stays_escaped(letter: str) -> None:
    shown = pretty(f'["{letter}", "\\u4f60"]', MOST)
    assert shown == f'[\n  "{letter}",\n  "你"\n]'


def test_a_long_text_is_cut() -> None:
    shown = pretty(json.dumps(["\u4f60" * 50] * 100), 1000)
    assert shown.startswith('[\n  "你你')
    assert len(shown) == 1000 + len("\n…")


@pytest.mark.parametrize("start", ["", "x"])  # the text is cut before an escape, and within one
def test_a_string_that_is_cut_is_read_once(start: str) -> None:
    began = time.process_time()
    text = json.dumps(["\u4f60", start + '"' * 200_000])
    assert pretty(text, 60_000).startswith(f'[\n  "你",\n  "{start}\\"\\"')
    assert time.process_time() - began < 2


def test_a_name_that_is_there_twice() -> None:
    pairs = [(f"a{number}", 0) for number in range(200_000)]
    began = time.process_time()
    with pytest.raises(RepeatedName, match="zz"):
        object_of([*pairs, ("zz", 0), ("zz", 0)])
    with pytest.raises(RepeatedName, match="b"):  # the first one of both
        object_of([("b", 0), ("c", 0), ("c", 0), ("b", 0)])
    assert time.process_time() - began < 2


def test_a_field_as_it_was_written() -> None:
    assert with_raw({"a": "名"}, "b", '{"n": 1.10}') == '{"a":"名","b":{"n": 1.10}}'
