"""Every frame of the vectors file, both ways, and the deviant ones with their stated outcome."""

from collections import Counter
from typing import Any

import pytest

import gateway.sgip as sgip
from gateway.sgip import Bind, Command, decode, decode_text, part_of
from tests.unit.gateway.sgip_vectors import VECTORS

CANONICAL = [entry for entry in VECTORS if entry["kind"] == "canonical"]
# Counted by the specification, derived here.
DERIVED = {"command", "command_id", "total_length", "user_count", "message_length"}


def by_name(entry: dict[str, Any]) -> str:
    return str(entry["name"])


def values(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of an entry as the command takes them."""
    made = {name: value for name, value in fields.items() if name not in DERIVED}
    for name in ("sequence", "submit_sequence", "user_numbers"):
        if name in made:
            made[name] = tuple(made[name])
    if "reserve" in made:
        made["reserve"] = bytes.fromhex(made["reserve"])
    if "message_content" in made:
        made["message_content"] = bytes.fromhex(made["message_content"]["hex"])
    return made


def command_class(fields: dict[str, Any]) -> type[Command]:
    found = getattr(sgip, fields["command"].replace("_", ""))
    assert found.command == fields["command"]
    assert isinstance(found, type)
    return found


def test_the_file_is_whole() -> None:
    assert Counter(entry["kind"] for entry in VECTORS) == {"canonical": 19, "deviant_but_seen": 2}
    assert len({entry["name"] for entry in VECTORS}) == 21


@pytest.mark.parametrize("entry", CANONICAL, ids=by_name)
def test_a_frame_is_encoded_from_its_fields(entry: dict[str, Any]) -> None:
    made = command_class(entry["fields"])(**values(entry["fields"]))
    assert made.encode() == bytes.fromhex(entry["hex"])
    assert len(made.encode()) == entry["fields"]["total_length"]


@pytest.mark.parametrize("entry", CANONICAL, ids=by_name)
def test_a_frame_is_decoded_into_its_fields_and_encoded_again(entry: dict[str, Any]) -> None:
    frame = bytes.fromhex(entry["hex"])
    command = decode(frame)
    fields = entry["fields"]
    assert type(command) is command_class(fields)
    assert f"0x{command.command_id:08x}" == fields["command_id"]
    for name, value in values(fields).items():
        assert getattr(command, name) == value, name
    for name in DERIVED & set(fields) - {"command", "command_id", "total_length"}:
        assert getattr(command, name) == fields[name], name
    assert command.encode() == frame


@pytest.mark.parametrize(
    "entry", [entry for entry in CANONICAL if "message_content" in entry["fields"]], ids=by_name
)
def test_the_text_of_a_frame_is_read(entry: dict[str, Any]) -> None:
    command, expected = decode(bytes.fromhex(entry["hex"])), entry["fields"]["message_content"]
    assert isinstance(command, sgip.Submit | sgip.Deliver)
    part = part_of(command)
    assert decode_text(part.payload, command.message_coding) == expected["text"]
    header = expected.get("udh", {"ref": 0, "total": 1, "seq": 1})
    assert (part.reference, part.total, part.number) == tuple(header.values())


def test_a_bind_resp_without_reserve_is_tolerated() -> None:
    (entry,) = [entry for entry in VECTORS if entry["name"] == "variant_bind_resp_no_reserve"]
    frame = bytes.fromhex(entry["hex"])
    assert len(frame) == entry["fields"]["total_length"] == 21
    assert decode(frame) == sgip.BindResp((3010099999, 1120203225, 7), 0)
    assert len(decode(frame).encode()) == 29  # what we send is right


def test_an_unbind_resp_with_a_body_is_tolerated() -> None:
    (entry,) = [entry for entry in VECTORS if entry["name"] == "variant_unbind_resp_with_body"]
    frame = bytes.fromhex(entry["hex"])
    assert len(frame) == entry["fields"]["total_length"] == 29
    assert decode(frame) == sgip.UnbindResp((3010099999, 1120203225, 7))
    assert len(decode(frame).encode()) == 20


def test_no_other_response_may_deviate() -> None:
    for entry in CANONICAL:
        frame = bytes.fromhex(entry["hex"])
        if entry["fields"]["command"] in {"Submit_Resp", "Deliver_Resp", "Report_Resp"}:
            with pytest.raises(sgip.TruncatedBody):
                decode((21).to_bytes(4, "big") + frame[4:21])


def test_a_report_under_the_id_of_deliver_is_refused() -> None:
    (entry,) = [entry for entry in VECTORS if entry["name"] == "report_delivered"]
    frame = bytearray.fromhex(entry["hex"])
    frame[7] = 4
    with pytest.raises(sgip.TruncatedBody) as caught:
        decode(bytes(frame))
    assert caught.value.closes
    assert caught.value.result == 8


def test_a_password_is_not_shown() -> None:
    bind = decode(bytes.fromhex(VECTORS[0]["hex"]))
    assert isinstance(bind, Bind)
    assert bind.login_password == "sppass"
    assert "sppass" not in repr(bind)
    assert "spuser" in str(bind)
