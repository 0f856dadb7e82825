"""What every adapter has from its base class, and the registry of adapters."""

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from crmsync.adapters.base import (
    AdapterCredentials,
    Check,
    CredentialsRefused,
    CRMAdapter,
    Field,
    Record,
    Stored,
    TooManyCalls,
)
from crmsync.adapters.http.adapter import HttpAdapter
from crmsync.adapters.outcomes import (
    Auth,
    Conflict,
    Invalid,
    Ok,
    Outcome,
    Refused,
    Retry,
    Throttled,
    Unknown,
)
from crmsync.adapters.records import is_same_value
from crmsync.adapters.registry import open_adapter, registry
from crmsync.admin.setup.crm_form import EXAMPLES
from msgplatform.core.errors import InvalidInput, Unavailable


class PaperCredentials(AdapterCredentials, frozen=True, kw_only=True):
    password: str


class Paper(CRMAdapter):
    """Answers what it is given in `answers`, a list for each call."""

    name = "paper"
    title = "The paper CRM"
    Credentials = PaperCredentials
    batch_size = 3

    def __init__(self, **settings: Any) -> None:
        super().__init__(settings, {"password": "hush-hush"})
        self.answers: list[list[Outcome]] = []
        self.delivered: list[list[Record]] = []
        self.stored: dict[str, Stored] = {}
        self.trouble: Exception | None = None

    def deliver(self, batch: Sequence[Record]) -> Sequence[Outcome]:
        self.delivered.append(list(batch))
        return self.answers.pop(0) if self.answers else [Ok(record.key) for record in batch]

    def fields(self) -> Mapping[str, Field]:
        if self.trouble:
            raise self.trouble
        return {"phone": Field("phone"), "made": Field("made", writable=False)}

    def read(self, keys: Collection[str]) -> Mapping[str, Stored]:
        if self.trouble:
            raise self.trouble
        return {key: self.stored[key] for key in keys if key in self.stored}


def records(*keys: str) -> list[Record]:
    return [Record(key, 1, {"phone": "138"}) for key in keys]


def test_goes_in_batches_and_answers_in_order() -> None:
    paper = Paper()
    assert paper.send(records(*"abcdefg")) == [Ok(key) for key in "abcdefg"]
    assert [len(call) for call in paper.delivered] == [3, 3, 1]
    assert paper.send([]) == []


def test_settings_make_a_batch_smaller_and_never_larger() -> None:
    assert Paper(batch_size=2).batch_size == 2
    assert Paper(batch_size=99).batch_size == 3
    assert Paper(per_second=1.5).per_second == 1.5


def test_of_a_key_that_comes_twice_the_newest_version_is_sent() -> None:
    paper = Paper()
    old, new = Record("a", 1, {}), Record("a", 2, {})
    assert paper.send([new, old, *records("b")]) == [Ok("a"), Ok("a"), Ok("b")]
    assert paper.delivered == [[new, *records("b")]]


@pytest.mark.parametrize("stop", [Auth("no"), Throttled(3.0)])
def test_nothing_more_is_sent_after_a_refusal_that_holds_for_all(stop: Outcome) -> None:
    paper = Paper()
    paper.answers = [[Ok("a"), stop, Invalid("phone", "too long")]]
    assert paper.send(records(*"abcde")) == [
        Ok("a"), stop, Invalid("phone", "too long"), stop, stop,
    ]  # fmt: skip
    assert len(paper.delivered) == 1


def test_an_adapter_that_miscounts_leaves_records_unknown() -> None:
    paper = Paper()
    paper.answers = [[Ok("a")]]
    assert {type(outcome) for outcome in paper.send(records("a", "b"))} == {Unknown}


def test_what_is_no_outcome_is_a_fault_of_the_adapter() -> None:
    paper = Paper()
    paper.answers = [[Ok("a"), None]]  # type: ignore[list-item]
    with pytest.raises(TypeError, match="Paper gave NoneType for an outcome"):
        paper.send(records("a", "b"))


def test_no_secret_is_in_a_message_or_a_repr() -> None:
    paper = Paper()
    text = "refused hush-hush\n here"
    paper.answers = [
        [Auth(text), Unknown(text), Refused(text)],
    ]
    outcomes = paper.send(records(*"abc"))
    paper.answers = [[Retry(1.0, text), Invalid("x", text)]]
    outcomes += paper.send(records("d", "e"))
    paper.trouble = Unavailable(text)
    shown = repr([outcomes, paper, paper.credentials, paper.check(), paper.look_up(records("a"))])
    assert "hush" not in shown
    assert outcomes[0] == Auth("refused ••• here")


def test_the_test_button_has_a_sentence_for_each_trouble() -> None:
    paper = Paper()
    assert paper.check(["phone"]).kind == "ok"
    assert paper.check(["phones"]) == Check(
        "field", "The paper CRM has no field phones. Did you mean phone?"
    )
    assert paper.check(["made"]).kind == "field"
    for trouble, kind in (
        (Unavailable("gone"), "unreachable"),
        (CredentialsRefused("bad"), "credentials"),
        (InvalidInput("odd", "table"), "settings"),
    ):
        paper.trouble = trouble
        assert paper.check().kind == kind


def test_looking_up_says_what_to_do_next() -> None:
    paper = Paper()
    paper.stored = {
        "same": Stored("1", {"phone": "138"}),
        "other": Stored("2", {"phone": "139"}),
        "newer": Stored("3", {}, version=2),
        "older": Stored("6", {"phone": "138"}, version=0),
        # A correction, and values by another mapping, have the version of what they replace.
        "before": Stored("7", {"phone": "139"}, version=1),
        "after": Stored("8", {"phone": "138"}, version=1),
        "gone": Stored("4", {}, deleted=True),
    }
    outcomes = paper.look_up(records(*paper.stored, "none"))
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds == [Ok, Conflict, Ok, Conflict, Conflict, Ok, Retry, Retry]
    paper.stored["nameless"] = Stored("", {"phone": "139"})
    known = Record("nameless", 1, {"phone": "138"}, remote_id="5")
    assert paper.look_up([known]) == [Conflict("5")]
    deleted = [Record(key, 2, {}, deleted=True) for key in ("same", "gone", "none")]
    assert [type(outcome) for outcome in paper.look_up(deleted)] == [Retry, Ok, Ok]
    paper.trouble = TooManyCalls("busy", 7.0)
    assert paper.look_up(records("same")) == [Throttled(7.0)]
    paper.trouble = CredentialsRefused("bad")
    assert [type(outcome) for outcome in paper.look_up(records("same"))] == [Auth]


@pytest.mark.parametrize(
    ("sent", "held", "expected"),
    [
        ("5", 5, True), (5, "5", True), (None, "", True), ("", None, True), ("0", None, False),
        (True, 1, True), (False, "false", True), (True, "0", False), ("a", "b", False),
    ],
)  # fmt: skip
def test_values_are_compared_across_types(sent: Any, held: Any, expected: bool) -> None:
    assert is_same_value(sent, held) is expected


@pytest.mark.parametrize(
    ("given", "field", "sentence"),
    [
        ({"batch": 5}, "batch", "There is no setting batch."),
        ({"batch_size": "x"}, "batch_size", "The setting batch_size cannot be used"),
        ({"per_day": -1}, "per_day", "The setting per_day cannot be used"),
    ],
)
def test_a_wrong_setting_is_named(given: dict[str, Any], field: str, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence) as error:
        Paper(**given)
    assert error.value.field == field


def test_a_setting_in_a_mapping_is_named_as_it_was_written() -> None:
    with pytest.raises(InvalidInput, match=r"The setting headers\.X-Id cannot be used") as error:
        HttpAdapter({"url": "http://crm/", "headers": {"Accept": "a", "X-Id": 5}}, {})
    assert error.value.field == "headers.X-Id"
    nested = {"token": "t", "login": {"user": "u"}}
    with pytest.raises(InvalidInput, match="The credential login is no text") as error:
        HttpAdapter({"url": "http://crm/"}, nested)
    assert error.value.field == "credentials"


@pytest.mark.parametrize("name", ["http", "hubspot", "salesforce", "sql", "tryton"])
def test_the_example_of_each_kind_can_be_used(name: str) -> None:
    settings, credentials = EXAMPLES[name]
    open_adapter(name, settings, credentials).close()


# -- the registry --------------------------------------------------------------------------------
@pytest.fixture
def installed(tmp_path: Path) -> Iterator[None]:
    """A package with two adapters, one that cannot be imported, and one under a name of ours."""
    (tmp_path / "paper_crm.py").write_text(
        "from tests.unit.crmsync.test_adapter_contract import Paper\nnot_an_adapter = print\n"
    )
    information = tmp_path / "paper_crm-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: paper-crm\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[msgplatform.crm_adapters]\npaper = paper_crm:Paper\nbroken = nowhere_at_all:Adapter\n"
        "odd = paper_crm:not_an_adapter\nsql = paper_crm:Paper\n"
    )
    sys.path.insert(0, str(tmp_path))
    registry.cache_clear()
    yield
    sys.path.remove(str(tmp_path))
    registry.cache_clear()


def test_the_platforms_own_adapters_are_known_by_their_names() -> None:
    known = registry()
    assert set(known.adapters) >= {"sql", "http", "hubspot", "salesforce", "tryton"}
    assert not known.broken
    assert all(adapter.name == name for name, adapter in known.adapters.items())


@pytest.mark.usefixtures("installed")
def test_a_broken_adapter_of_a_third_party_does_not_stop_the_others() -> None:
    known = registry()
    assert known.get("paper").name == "paper"
    assert known.get("sql").__name__ == "SqlAdapter"  # nobody takes a name of ours
    with pytest.raises(InvalidInput, match="broken cannot be used: ModuleNotFoundError"):
        known.get("broken")
    with pytest.raises(InvalidInput, match="is no subclass of CRMAdapter"):
        known.get("odd")
    with pytest.raises(InvalidInput, match=r"There is no adapter pager\. Known are:.* paper, "):
        known.get("pager")
