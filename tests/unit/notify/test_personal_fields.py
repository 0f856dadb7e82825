import json
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from msgplatform.core.person.identity import Person
from msgplatform.core.personal import MARK
from notify import personal_fields
from notify.person_data import payloads

LI = Person(
    phones=frozenset({"13800138000"}),
    emails=frozenset({"li@example.com"}),
    users=frozenset({(7, "1001")}),
)
CUSTOMER = ["/customer/name", "/customer/phone", "/customer/id"]


def erased(content: Any, *pointers: str) -> Any:
    new = payloads.erase_person(json.dumps(content).encode(), pointers, LI, 7)
    return None if new is None else json.loads(new)


def test_all_named_fields_of_the_persons_event_are_erased() -> None:
    content = {"order": 5, "customer": {"name": "Li", "phone": "+86 138 0013 8000", "id": 9}}
    assert erased(content, *CUSTOMER) == {
        "order": 5, "customer": {"name": MARK, "phone": MARK, "id": MARK},
    }  # fmt: skip
    content = {"to": "13800138000", "vip": False, "children": 0, "note": None, "tags": []}
    assert erased(content, *(f"/{name}" for name in content)) == {
        "to": MARK, "vip": MARK, "children": MARK, "note": None, "tags": [],
    }  # fmt: skip


def test_a_user_is_found_in_named_fields_only() -> None:
    content = {"order": "1001", "customer": {"name": "Li", "id": "1001"}}
    assert erased(content, *CUSTOMER) == {"order": "1001", "customer": {"name": MARK, "id": MARK}}
    assert erased(content) is None
    assert erased({"order": "1001", "customer": {"name": "Li", "id": "1002"}}, *CUSTOMER) is None


def test_of_a_list_only_the_persons_entry_is_erased() -> None:
    content = {
        "buyer": "Wang",
        "passengers": [{"name": "Li", "phone": "13800138000"}, {"name": "Zhao", "phone": "13900"}],
    }
    pointers = ("/buyer", "/passengers/*/name", "/passengers/*/phone")
    assert erased(content, *pointers) == {
        "buyer": "Wang",
        "passengers": [{"name": MARK, "phone": MARK}, {"name": "Zhao", "phone": "13900"}],
    }


def test_a_number_in_a_field_that_nobody_named_is_erased_alone() -> None:
    content = {"name": "Li", "note": "call 13800138000", "cc": ["li@example.com", "x@example.com"]}
    assert erased(content) == {
        "name": "Li", "note": f"call {MARK}", "cc": [MARK, "x@example.com"],
    }  # fmt: skip


def test_a_number_that_nobody_named_takes_no_named_field_with_it() -> None:
    content = {
        "customer": {"name": "Wang", "phone": "13900"}, "note": "driver: 13800138000",
        "passengers": [{"name": "Zhao", "remark": "ask 13800138000"}],
    }  # fmt: skip
    assert erased(content, *CUSTOMER, "/passengers/*/name") == {
        "customer": {"name": "Wang", "phone": "13900"}, "note": f"driver: {MARK}",
        "passengers": [{"name": "Zhao", "remark": f"ask {MARK}"}],
    }  # fmt: skip


@pytest.mark.parametrize("more", [{}, {"note": "13800138000"}])
def test_an_export_has_no_other_entry_of_a_list(more: Any) -> None:
    content = {
        "buyer": "Wang", "order": 7,
        "passengers": [{"name": "Li", "phone": "13800138000"}, {"name": "Zhao", "phone": "13900"}],
        **more,
    }  # fmt: skip
    pointers = ("/buyer", "/passengers/*/name", "/passengers/*/phone")
    payload = payloads.mask_others(json.dumps(content).encode(), pointers, LI, 7)
    assert json.loads(payload) == {
        "buyer": MARK, "order": 7,
        "passengers": [{"name": "Li", "phone": "13800138000"}, {"name": MARK, "phone": MARK}],
        **more,
    }  # fmt: skip


def test_a_whole_object_may_be_named() -> None:
    content = {"customer": {"any": {"phone": 13800138000}, "more": [1]}}
    assert erased(content, "/customer", "/customer/any/phone") == {"customer": MARK}


def test_numbers_keep_their_spelling() -> None:
    payload = b'{"amount":99.10,"big":12345678901234567890,"to":"13800138000"}'
    assert payloads.erase_person(payload, (), LI, 7) == (
        b'{"amount":99.10,"big":12345678901234567890,"to":"[erased]"}'
    )


def test_of_fields_with_one_name_all_are_erased() -> None:
    payload = b'{"customer":{"name":"Li","phone":"13800138000"},"customer":{"name":"Wang"}}'
    for pointers in ((), CUSTOMER):
        new = payloads.erase_person(payload, pointers, LI, 7)
        assert new == b'{"customer":{"name":"Wang"}}'
    amounts = b'{"amount":13800138000.50,"amount":13800138000.50}'
    assert payloads.erase_person(amounts, (), LI, 7) is None


def test_what_is_no_json_is_a_text() -> None:
    assert payloads.erase_person(b"to 13800138000 \xff", (), LI, 7) == b"to [erased] \xff"
    assert payloads.erase_person(b"\xff", (), LI, 7) is None


def test_what_is_erased_is_not_found_again() -> None:
    content = {"customer": {"name": MARK, "phone": MARK, "id": MARK}}
    assert erased(content, *CUSTOMER) is None


def test_escaped_signs_are_read() -> None:
    payload = b'{"to":"\\u0031380013800\\u0030"}'
    assert payloads.erase_person(payload, (), LI, 7) == b'{"to":"[erased]"}'


@pytest.mark.parametrize("wrong", ["/a", ["a"], [1], [""], ["/" + "a" * 200], ["/a"] * 51, {}])
def test_wrong_pointers_are_refused(wrong: Any) -> None:
    with pytest.raises(ValidationError):
        personal_fields.validate(wrong)


def test_right_pointers_are_taken() -> None:
    personal_fields.validate(["/a/b", "/a/*/b", "/a~1b/0"])


# -- two people in one event ---------------------------------------------------------------------
BOBS = {
    "order": 7, "customer": {"name": "Bob", "phone": "13944455566"},
    "note": "if I am out call my neighbour Li, 13800138000. My code is 4711.",
}  # fmt: skip
POINTERS = (*CUSTOMER, "/note")


def test_a_mention_in_a_named_field_makes_nobody_the_owner() -> None:
    """A stranger's number in a note must not erase the customer."""
    assert erased(BOBS, *POINTERS) == {
        **BOBS, "note": f"if I am out call my neighbour Li, {MARK}. My code is 4711.",
    }  # fmt: skip
    mo = {"from": "13944455566", "text": "please call Li 138 - 0013 - 8000"}
    assert erased(mo, "/from", "/text") == {**mo, "text": f"please call Li {MARK}"}


def test_an_export_of_a_mention_has_the_sentence_alone() -> None:
    payload = payloads.mask_others(json.dumps(BOBS).encode(), POINTERS, LI, 7)
    assert json.loads(payload) == {
        "/note": "if I am out call my neighbour Li, 13800138000",
    }  # fmt: skip


@pytest.mark.parametrize(
    "phone",
    ["139 - 1112 - 2233", "139/1112/2233", "(139) - 11122233", "139\u00a01112\u00a02233",
     "１３９１１１２２２３３", 13911122233, 13911122233.0, "+86 (0) 139 1112 2233",
     "tel:+8613911122233"],
)  # fmt: skip
def test_spellings_of_an_owner(phone: Any) -> None:
    ann = Person(phones=frozenset({"13911122233"}))
    content = {"customer": {"name": "Ann", "phone": phone}, "order": 5}
    new = payloads.erase_person(json.dumps(content).encode(), CUSTOMER, ann, 7)
    assert new is not None
    assert json.loads(new) == {"customer": {"name": MARK, "phone": MARK}, "order": 5}


def test_short_numbers_count_where_a_field_is_one() -> None:
    short = Person(phones=frozenset({"8812345"}))
    content = {"order_no": 8812345, "price": "88123.45", "customer": {"phone": "881 2345"}}
    new = payloads.erase_person(json.dumps(content).encode(), CUSTOMER, short, 7)
    assert new is not None
    assert json.loads(new) == {**content, "customer": {"phone": MARK}}
