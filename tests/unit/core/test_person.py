import base64
import json
import quopri
import re
import time
from collections.abc import Mapping
from decimal import Decimal
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, strategies as st

from msgplatform.core.characters import PHONE_PUNCTUATION
from msgplatform.core.errors import InvalidInput
from msgplatform.core.person import spellings
from msgplatform.core.person.identity import Person, clean, phone_digits
from msgplatform.core.personal import MARK

LI = Person(
    phones=frozenset({"13800138000"}),
    emails=frozenset({"li.lei@example.com"}),
    users=frozenset({(7, "1001")}),
)


@pytest.mark.parametrize(
    "text",
    ["13800138000", "+86 138-0013-8000", "008613800138000", "0086 138 0013 8000", "86-13800138000",
     "(138) 0013 8000", "１３８００１３８０００", " 138.0013.8000 "],
)  # fmt: skip
def test_spellings_of_a_number_are_one(text: str) -> None:
    assert phone_digits(text) == "13800138000"


@pytest.mark.parametrize("text", ["", "abc", "138001380OO", "li@example.com"])
def test_what_is_no_number(text: str) -> None:
    assert phone_digits(text) == ""


def test_numbers_of_other_countries_keep_theirs() -> None:
    assert phone_digits("+44 7700 900123") == "447700900123"
    assert phone_digits("010-12345678") == phone_digits("+86 10 1234 5678") == "1012345678"


def test_columns_have_a_number_with_the_trunk_s_zero_too() -> None:
    spellings = Person(phones=frozenset({"1012345678"})).phone_spellings
    assert {"1012345678", "01012345678", "861012345678", "8601012345678"} <= set(spellings)
    assert len(set(spellings)) == len(spellings)
    abroad = Person(phones=frozenset({phone_digits("+44 7700 900123")})).phone_spellings
    assert {"447700900123", "+447700900123", "00447700900123"} <= set(abroad)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("call +86 138-0013-8000!", f"call {MARK}!"),
        ("请致电13800138000谢谢", f"请致电{MARK}谢谢"),
        ("8613800138000,13800138001", f"{MARK},13800138001"),
        ("to Li.Lei@Example.com.", f"to {MARK}."),
        # Other numbers and addresses of which the person's is a part.
        ("order 2138001380009", "order 2138001380009"),
        ("20261380013800099", "20261380013800099"),
        ("my.li.lei@example.com", "my.li.lei@example.com"),
        ("li.lei@example.com.cn", "li.lei@example.com.cn"),
        ("user 1001", "user 1001"),
    ],
)
def test_only_the_persons_own_is_erased_from_a_text(text: str, left: str) -> None:
    assert LI.erased(text) == left
    assert LI.is_in(text) is (text != left)


def test_values_of_json_keep_their_shape() -> None:
    numbers = [13800138000, 13800138000.0, Decimal("13800138000.00")]
    value = {"a": [*numbers, 1.5, True, None, "x"], "13800138000": "li.lei@example.com"}
    assert LI.erased_value(value) == {"a": [MARK, MARK, MARK, 1.5, True, None, "x"], MARK: MARK}
    for other in (13800138000.5, Decimal("1e999999999"), float("inf"), float("nan")):
        assert LI.erased_value([other]) == [other]


def test_user_ids_count_only_where_a_field_holds_one_of_their_system() -> None:
    assert LI.is_owner("1001", 7)
    assert LI.is_owner(1001, 7)
    assert LI.is_owner(1001.0, 7)
    assert not LI.is_owner("1001", 8)
    assert not LI.is_owner("10012", 7)
    assert not LI.is_owner(True, 7)


def test_identifiers_are_cleaned() -> None:
    identifiers = {"phones": [" +86 13800138000 ", "13800138000", ""], "emails": ["LI@example.com"],
                   "users": [" shop / 1001 "], "leads": ["007"]}  # fmt: skip
    assert clean(identifiers) == {
        "phones": ["13800138000"], "emails": ["li@example.com"], "users": ["shop/1001"],
        "leads": ["7"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("identifiers", "field"),
    [
        ({}, "phones"),
        ({"phones": ["  "]}, "phones"),
        ({"phones": ["12345"]}, "phones"),
        ({"phones": ["1" * 20]}, "phones"),
        ({"emails": ["li"]}, "emails"),
        ({"users": ["1001"]}, "users"),
        ({"leads": ["x"]}, "leads"),
        ({"leads": [str(2**63)]}, "leads"),
        ({"leads": ["1" * 5000]}, "leads"),
        ({"names": ["Li"]}, "names"),
        ({"phones": [f"138001380{n:02}" for n in range(51)]}, "phones"),
    ],
)
def test_wrong_identifiers_are_refused(identifiers: dict[str, list[str]], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        clean(identifiers)
    assert refused.value.field == field


# -- spellings -----------------------------------------------------------------------------------
@pytest.mark.parametrize("run", ["\\", "%5c", "%5c\\", "%25", "&amp;", "=", "0"])
def test_the_time_grows_with_the_length_of_a_text(run: str) -> None:
    began = time.process_time()
    text = run * 30_000
    assert LI.erased(f"13800138000 {text} li.lei@example.com") == f"{MARK} {text} {MARK}"
    assert not LI.may_be_in(f'{{"a":"{text}"}}')
    assert time.process_time() - began < 5  # not minutes


def test_references_of_thousands_of_digits() -> None:
    assert not LI.may_be_in(f"&#{'1' * 5000}")
    assert LI.erased(f"&#{'1' * 5000}; 13800138000") == f"&#{'1' * 5000}; {MARK}"
    assert LI.erased(f"&#{'0' * 5000}49;3800138000") == MARK


@pytest.mark.parametrize("count", [1, 7, 40])
def test_escapes_in_texts_in_other_texts(count: int) -> None:
    escape = "\\" * count
    digits = "".join(f"{escape}u003{digit}" for digit in "13800138000")
    address = f"li.lei{escape}u0040example.com{escape}n"
    assert LI.erased(f"a {digits} {address}") == f"a {MARK} {MARK}{escape}n"


SIGNS = [
    *" -.()/~·", "\u00a0", "\u2009", "\u3000", "\u2010", "\u2011", "\u2013", "\u2014", "\u2212",
    "\u00ad", "\u200b", "\u202d", "\u2060", "（", "）", "－", "／", " - ", " / ", ") -", "\t",
]  # fmt: skip
DIGITS = ["0123456789", "０１２３４５６７８９", "٠١٢٣٤٥٦٧٨٩", "𝟎𝟏𝟐𝟑𝟒𝟓𝟔𝟕𝟖𝟗"]
PREFIXES = ["", "+86", "0086", "86", "+86 (0) ", "+86-", "＋８６"]


@given(
    st.sampled_from(PREFIXES), st.sampled_from(DIGITS),
    st.dictionaries(st.integers(1, 10), st.sampled_from(SIGNS), max_size=6),
)  # fmt: skip
def test_an_identifier_is_one_in_any_text(
    prefix: str, digits: str, signs: Mapping[int, str]
) -> None:
    number = "".join(signs.get(n, "") + digits[int(d)] for n, d in enumerate("13800138000"))
    text = prefix + number
    if not LI.is_identifier(text):
        return  # such as a single point, which is an amount
    assert LI.is_in(f"call {text}, please") or spellings.is_price(text)


@pytest.mark.parametrize(
    "number",
    ["139 - 1112 - 2233", "139/1112/2233", "(139) - 11122233", "139\u00a01112\u00a02233",
     "139‑1112‑2233", "１３９１１１２２２３３", "139--1112--2233", "+86 (0) 139 1112 2233",
     "tel:+86-139-1112-2233", "1795113911122233", "17951-139 1112 2233", "12593 0139-1112-2233",
     "10193１３９１１１２２２３３", "1252013911122233",
     "139\u200b1112\u200b2233", "139.1112.2233", "139–1112–2233", "139−1112−2233"],
)  # fmt: skip
def test_spellings_that_people_write(number: str) -> None:
    ann = Person(phones=frozenset({"13911122233"}))
    assert ann.is_identifier(number)
    assert MARK in ann.erased(f"Ann: {number} (mobile)")
    assert "1112" not in ann.erased(f"Ann: {number} (mobile)")


def test_a_longer_number_is_somebody_elses() -> None:
    ann = Person(phones=frozenset({"13911122233"}))
    for number in ("61795113911122233", "1234513911122233", "179511391112223", "17951139111222334"):
        assert ann.erased(f"No. {number}") == f"No. {number}"
        assert not ann.is_identifier(number)


@pytest.mark.parametrize(
    ("text", "erased"),
    [
        ("https://x/u?email=li.lei%40example.com&a=1", f"https://x/u?email={MARK}&a=1"),
        ("https://x/u?email=li.lei%2540example.com", f"https://x/u?email={MARK}"),
        ("u?p=%2B8613800138000&q", f"u?p={MARK}&q"),
        ("u?p=%20138%200013%208000", f"u?p=%20{MARK}"),
        (r'{"mail":"li.lei\u0040example.com"}', f'{{"mail":"{MARK}"}}'),
        (r'"{\"mail\":\"li.lei\\u0040example.com\"}"', rf'"{{\"mail\":\"{MARK}\"}}"'),
        (r'{"p":"\uff11\uff13\uff1800138000"}', f'{{"p":"{MARK}"}}'),
        ("li.lei&#64;example.com", MARK),
        ("ｌｉ．ｌｅｉ＠ｅｘａｍｐｌｅ．ｃｏｍ", MARK),
        ("mailto:li.lei@example.com", f"mailto:{MARK}"),
    ],
)
def test_texts_in_other_texts(text: str, erased: str) -> None:
    assert LI.erased(text) == erased


@pytest.mark.parametrize("digits", DIGITS)
def test_digits_of_all_scripts_in_other_texts(digits: str) -> None:
    number = "".join(digits[int(digit)] for digit in "13800138000")
    for text in (
        json.dumps(number), json.dumps(json.dumps(number)), quote(number), quote(quote(number)),
        "".join(f"&#{ord(digit)};" for digit in number),
        "".join(f"&#x{ord(digit):X};" for digit in number),
    ):  # fmt: skip
        assert LI.is_in(text), text
        assert LI.erased(text).strip('\\"') == MARK


# Every sign that may stand in a number, and others that people write.
_CLASS = re.compile(f"[{PHONE_PUNCTUATION}_*|'\u2019\uff3f\u2500\u20e3]")
ALL_SIGNS = [chr(code) for code in range(0x20, 0xFFF9) if _CLASS.match(chr(code))]


@pytest.mark.parametrize("sign", ALL_SIGNS, ids=lambda sign: f"U+{ord(sign):04X}")
def test_all_signs_in_texts_in_other_texts(sign: str) -> None:
    number, code = sign.join(("138", "0013", "8000")), ord(sign)
    in_json = json.dumps({"p": number})
    texts = [
        number, in_json, json.dumps(in_json), quote(in_json), json.dumps(quote(number)),
        *(f"https://x/?p={encode(number)}&b=1" for encode in (quote, quote_plus)),
        f"https://x/?p={quote(quote(number))}&b=1",
        f"138&#{code};0013&#{code};8000", f"138&#x{code:x};0013&amp;#x{code:X};8000",
        f"138\\u{{{code:x}}}0013%u{code:04x}8000", repr(number.encode()),
        quopri.encodestring(number.encode(), quotetabs=True).decode(),
    ]  # fmt: skip
    for text in texts:
        assert "0013" not in LI.erased(text), text


@pytest.mark.parametrize(
    "text",
    ["138&ndash;0013&thinsp;8000", "138<b>0013</b>8000", "138<br/>0013 <i class='x'>8000",
     "幺三八零零幺三八零零零", "壹叁捌〇〇一叁捌〇〇〇", "①③⑧⓪⓪①③⑧⓪⓪⓪", "1️⃣3️⃣8️⃣0️⃣0️⃣1️⃣3️⃣8️⃣0️⃣0️⃣0️⃣",
     "1٣8００1३8000",
     r"\x31\x33\x3800138000", r"\u{31}3800138000", "%u0031%u0033%u003800138000",
     "=31=33=38=30=30=31=33=38=30=30=30", "1380013=\r\n8000", "[138 0013 8000](tel:13800138000)",
     "https://wa.me/8613800138000?text=hi", "id_13800138000_x", "li.lei&commat;example&period;com",
     "li.lei=40example.com", r"li.lei\x40example.com"],
)  # fmt: skip
def test_spellings_of_pages_mails_and_programs(text: str) -> None:
    assert LI.is_in(f"a {text} b")
    left = LI.erased(f"a {text} b")
    assert "8000" not in left
    assert "example" not in left


def test_texts_in_base64() -> None:
    content = '{"name":"Li","phone":"138\u20110013\u20118000"}'
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for padding in ("=", ""):
            text = encode(content.encode()).decode().rstrip("=" if not padding else "")
            body = json.dumps({"data_base64": text, "type": "internationalization"})
            assert LI.is_in(body)
            assert LI.may_be_in(body)
            erased = json.loads(LI.erased(body))
            assert erased["type"] == "internationalization"
            inner = erased["data_base64"].replace("-", "+").replace("_", "/")
            decoded = base64.b64decode(inner + "=" * (-len(inner) % 4)).decode()
            assert json.loads(decoded) == {"name": "Li", "phone": MARK}
    mention = LI.mention(f"x {base64.b64encode(b'13800138000, Bob: 13944455566').decode()} y")
    assert "13944455566" not in base64.b64decode(mention.split()[1]).decode()


@pytest.mark.parametrize(
    "text",
    ["13800138000%31", "&#49;13800138000", r"\u003113800138000", "138001380001",
     "%3113800138000", "13:800:138:000", "13,800,138,000"],
)  # fmt: skip
def test_longer_numbers_and_lists_are_others(text: str) -> None:
    assert LI.erased(f"n {text} m") == f"n {text} m"


def test_amounts_and_order_numbers_are_nobodys() -> None:
    short = Person(phones=frozenset({"8812345"}))
    assert short.erased_value({"order_no": 8812345, "price": "88123.45"}) == {
        "order_no": 8812345, "price": "88123.45",
    }  # fmt: skip
    assert not short.is_identifier(8812345)
    assert short.is_identifier("881 2345", is_named=True)
    assert not LI.is_in("1380013.8000")
    assert not LI.is_in("138001380.00 yuan")


def test_a_mention_has_nothing_of_others() -> None:
    text = "My PIN is 4711. Please call Li 138 0013 8000 or me 13944455566! My account is 998877."
    assert LI.mention(text) == "Please call Li 138 0013 8000 or me 139****5566"
    assert LI.mention("nobody") == ""
    assert LI.mentions({"a": {"b": "13800138000"}, "c": "13944455566", "d": [1]}) == {
        "a": {"b": "13800138000"}
    }
