"""Text in and out of messages: no character is lost, cut or replaced."""

import sys
from string import ascii_letters

import pytest
from hypothesis import given, strategies as st

from gateway.sgip import (
    Coding,
    Deliver,
    Parts,
    SplitOptions,
    TextError,
    alphabet_of,
    choose_coding,
    decode_text,
    encode_text,
    part_of,
    split,
    text_of,
)
from gateway.sgip.text.parts import OCTETS
from tests.unit.gateway.sgip_support import deliver

CHINESE = "长短信测试内容"
EMOJI = "😀"
# What GSM 03.38 has of ASCII, and which of it are two septets.
GSM = "@$\n\r_ !\"#%&'()*+,-./0123456789:;<=>?" + ascii_letters + "[]{}~\\^|"
EXTENSION = "[]{}~\\^|"
TEXT = st.one_of(
    # U+FEFF in front of a text is a byte order mark, U+FFFE the same mark turned round.
    st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="\ufeff\ufffe"), max_size=400
    ),
    st.text("abc长短信😀é", min_size=60, max_size=400),
    st.text("abc长短信", min_size=60, max_size=400),
    st.text("abcdefghij ", min_size=120, max_size=400),
    st.text("abcdefghij []{}~\\^|", min_size=60, max_size=400),
)
OPTIONS = st.builds(
    SplitOptions,
    chinese=st.sampled_from([Coding.GBK, Coding.UCS2]),
    signature=st.sampled_from(["", "【公司】", "[Company]", "【😀】"]),
    packed_ascii=st.booleans(),
)


def delivers(parts: Parts) -> list[Deliver]:
    return [
        deliver(n, content, tp_udhi=parts.tp_udhi, message_coding=parts.message_coding)
        for n, content in enumerate(parts.contents)
    ]


def read(parts: Parts) -> str:
    """The text as a receiver puts it together."""
    found = [part_of(command) for command in delivers(parts)]
    assert [part.number for part in found] == list(range(1, len(found) + 1))
    assert {part.total for part in found} == {len(found)}
    return text_of({part.number: part.payload for part in found}, parts.message_coding)


@given(TEXT, OPTIONS, st.integers(0, 2**20))
def test_no_text_loses_a_character(text: str, options: SplitOptions, reference: int) -> None:
    parts = split(text, reference, options)
    assert read(parts) == text
    if parts.tp_udhi:
        assert {part_of(command).reference for command in delivers(parts)} == {reference & 0xFF}


@given(TEXT, OPTIONS)
def test_no_part_cuts_a_character(text: str, options: SplitOptions) -> None:
    parts = split(text, 1, options)
    codec = {Coding.ASCII: "ascii", Coding.GBK: "gbk", Coding.UCS2: "utf-16-be"}
    payloads = [part_of(command).payload for command in delivers(parts)]
    assert "".join(p.decode(codec[Coding(parts.message_coding)]) for p in payloads) == text
    assert all(payloads) or text == ""


@given(TEXT, OPTIONS)
def test_every_part_fits_with_the_signature(text: str, options: SplitOptions) -> None:
    parts = split(text, 1, options)
    packed = options.packed_ascii and parts.message_coding == Coding.ASCII
    packed = packed and not set(text + options.signature) - set(GSM)
    signature = encode_text(options.signature, Coding(parts.message_coding))
    for n, content in enumerate(parts.contents):
        payload = part_of(delivers(parts)[n]).payload
        header = len(content) - len(payload)
        own = payload if n else signature + payload
        length = header + len(own)
        if packed:  # septets, after a header that is filled up to a whole one
            septets = sum(1 + (character in EXTENSION) for character in own.decode("ascii"))
            length = -(-(header * 8 + septets * 7) // 8)
        assert length <= OCTETS


@pytest.mark.parametrize(
    ("text", "options", "sizes"),
    [
        ("", SplitOptions(), [0]),
        ("a" * 140, SplitOptions(), [140]),
        ("a" * 141, SplitOptions(), [140, 13]),
        ("a" * 160, SplitOptions(packed_ascii=True), [160]),
        ("a" * 161, SplitOptions(packed_ascii=True), [159, 14]),
        ("[" * 80, SplitOptions(packed_ascii=True), [80]),  # two septets each
        ("a" + "|" * 80, SplitOptions(packed_ascii=True), [83, 10]),  # 153 septets, none cut in two
        ("a" * 159 + "~", SplitOptions(packed_ascii=True), [159, 13]),
        (
            "`" + "a" * 139,
            SplitOptions(packed_ascii=True),
            [140],
        ),  # not packed: GSM has no backtick
        ("\t" + "a" * 140, SplitOptions(packed_ascii=True), [140, 13]),
        ("{" * 140, SplitOptions(), [140]),  # bytes
        ("a" * 151, SplitOptions(signature="[Name] ", packed_ascii=True), [151]),
        ("a" * 152, SplitOptions(signature="[Name] ", packed_ascii=True), [150, 14]),
        ("长" * 70, SplitOptions(), [140]),
        ("长" * 71, SplitOptions(), [140, 14]),
        ("a" + "长" * 70, SplitOptions(), [139, 14]),  # no double byte is cut
        ("长" * 70, SplitOptions(chinese=Coding.UCS2), [140]),
        ("长" * 150, SplitOptions(chinese=Coding.UCS2), [140, 140, 38]),  # 67, 67, 16
        (EMOJI * 35, SplitOptions(), [140]),
        (EMOJI * 36, SplitOptions(), [138, 18]),  # no surrogate pair is cut
        ("a" + EMOJI * 35, SplitOptions(), [140, 14]),
        ("长" * 66, SplitOptions(signature="【公司】"), [132]),
        ("长" * 67, SplitOptions(signature="【公司】"), [132, 14]),
        ("长" * 140, SplitOptions(signature="【公司】"), [132, 140, 26]),
        ("hello", SplitOptions(signature="【公司】"), [5]),
    ],
)
def test_sizes(text: str, options: SplitOptions, sizes: list[int]) -> None:
    parts = split(text, 0, options)
    assert [len(content) for content in parts.contents] == sizes
    assert read(parts) == text


def test_the_signature_takes_part_in_the_choice_of_the_charset() -> None:
    assert split("hello").message_coding == Coding.ASCII
    assert split("hello", 0, SplitOptions(signature="【公司】")).message_coding == Coding.GBK
    assert split(CHINESE, 0, SplitOptions(signature=EMOJI)).message_coding == Coding.UCS2


def test_the_header_of_each_part() -> None:
    parts = split("长" * 100, 0x12A)
    assert [content[:6].hex() for content in parts.contents] == ["0500032a0201", "0500032a0202"]


def test_there_are_at_most_255_parts() -> None:
    assert len(split("a" * 134 * 255).contents) == 255
    with pytest.raises(TextError, match="256 parts"):
        split("a" * 134 * 255 + "a")


def test_a_signature_that_leaves_no_space_is_refused() -> None:
    with pytest.raises(TextError, match="space"):
        split("a" * 141, 0, SplitOptions(signature="b" * 131))


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(TextError, match=r"U\+D83D"):
        split("half \ud83d")
    with pytest.raises(TextError):
        choose_coding("\udc00", Coding.UCS2)


def test_a_character_that_a_charset_lacks_is_named() -> None:
    with pytest.raises(TextError, match=r"gbk has no U\+1F600 \(at 2\)"):
        encode_text("长短😀", Coding.GBK)
    with pytest.raises(TextError, match="holds no text"):
        encode_text("a", Coding.BINARY)


def test_every_character_of_unicode_survives_the_charset_that_is_chosen() -> None:
    chosen = dict.fromkeys(Coding, 0)
    for point in range(sys.maxunicode + 1):
        if 0xD800 <= point < 0xE000 or point == 0xFFFE:
            continue  # no characters
        if point > 0x3000 and point % 7 and not 0x4E00 <= point < 0x9FFF:
            continue  # the sparse planes in steps
        character = chr(point)
        coding = choose_coding(character)
        chosen[coding] += 1
        # A byte order mark in front of a text is what it is for a receiver.
        expected = "" if point == 0xFEFF else character
        assert decode_text(encode_text(character, coding), coding) == expected
    assert chosen[Coding.ASCII] == 128
    assert chosen[Coding.GBK] > 20000


@pytest.mark.parametrize(
    ("coding", "alphabet"),
    [
        (0, Coding.ASCII),
        (3, Coding.BINARY),
        (4, Coding.BINARY),
        (8, Coding.UCS2),
        (12, Coding.BINARY),
        (15, Coding.GBK),
        (0x10, Coding.ASCII),
        (0x14, Coding.BINARY),
        (0x18, Coding.UCS2),
        (0x1F, Coding.GBK),
        (0x40, Coding.ASCII),
        (0x44, Coding.BINARY),
        (0x48, Coding.UCS2),
        (0x80, Coding.ASCII),
        (0xC0, Coding.ASCII),
        (0xE0, Coding.UCS2),
        (0xF0, Coding.ASCII),
        (0xF4, Coding.BINARY),
    ],
)
def test_codings_of_gsm_03_38(coding: int, alphabet: Coding) -> None:
    assert alphabet_of(coding) is alphabet


@pytest.mark.parametrize(
    ("content", "coding", "text"),
    [
        (b"hello", 0, "hello"),
        ("你好".encode("gbk"), 0, "你好"),  # says ASCII, is not
        ("你好𠮷".encode("gb18030"), 15, "你好𠮷"),
        ("你好".encode("gbk") + b"\xc4", 15, "你好\\xc4"),
        ("你好".encode("utf-16-be"), 0x18, "你好"),
        (b"\xfe\xff" + "你".encode("utf-16-be"), 8, "你"),
        (b"\xff\xfe" + "你".encode("utf-16-le"), 8, "你"),
        (b"\x4f\x60\x59", 8, "你\\x59"),
        (b"\xd8\x3d", 8, "\\xd8\\x3d"),
        (b"\x01\xff", 4, "01ff"),
        (b"", 8, ""),
    ],
)
def test_what_is_received_is_read_and_nothing_dropped(
    content: bytes, coding: int, text: str
) -> None:
    assert decode_text(content, coding) == text


@given(st.binary(max_size=160), st.integers(0, 255))
def test_reading_never_fails(content: bytes, coding: int) -> None:
    decode_text(content, coding).encode("utf-8")
