"""What the demo of CRM sync sends: enough of each kind, and the same in each run."""

from collections import Counter

from demo.crmsync import leads, traffic
from demo.crmsync.leads import CARS, COURSES, MAX_COMPANY, Lead

COUNT = 2_500
ALL = leads.all_leads(COUNT)


def test_each_person_has_a_number_of_their_own() -> None:
    assert len({one.phone for one in ALL}) == COUNT
    assert leads.all_leads(COUNT) == ALL


def test_there_is_enough_of_everything() -> None:
    routes = Counter(one.route for one in ALL)
    assert routes["form"] > 400
    assert routes["single"] > 200
    assert routes["batch"] > 1_600
    assert Counter(one.poison for one in ALL)[""] == COUNT - 20
    methods = Counter(change.method for one in ALL for change in leads.changes(one))
    assert methods == {"PATCH": 620, "PUT": 125, "DELETE": 250}
    assert any(len(leads.changes(one)) == 2 for one in ALL)


def test_what_is_poisoned_is_so_in_one_way_and_never_changes() -> None:
    for one in ALL:
        assert (len(one.extra.get("company", "")) > MAX_COMPANY) is (one.poison == "company")
        assert (not one.name) is (one.poison == "name")
        assert one.extra["email"].endswith(leads.BLOCKED_DOMAIN) is (one.poison == "email")
        assert not (one.poison and leads.changes(one))
    assert {one.page for one in ALL if one.poison == "name"} == {COURSES}  # where it is optional


def test_changes_lead_to_what_is_expected_after_them() -> None:
    one = leads.lead(16)
    assert (one.page, one.extra["company"]) == (CARS, "Smith & Søn")
    patch, delete = leads.changes(one)
    leads.apply(one, patch)
    assert (one.extra["company"], one.deleted) == ("Moved on 16", False)
    leads.apply(one, delete)
    assert one.deleted
    other = leads.lead(23)
    (put,) = leads.changes(other)
    leads.apply(other, put)
    assert other.name.endswith("23 again")
    assert other.extra == {"email": "new23@mail.example"}


def test_a_form_is_read_as_browsers_do() -> None:
    form = traffic.Form(
        '<input type="hidden" name="form_key" value="ab">'
        '<input name="name" type="text" value="O&#x27;Brien &lt;b&gt;">'
        '<textarea name="message"></textarea><button>Send</button>'
    )
    assert form.fields == {"form_key": "ab", "name": "O'Brien <b>", "message": ""}


def test_people_write_their_number_in_groups() -> None:
    one = Lead(1, COURSES, "王", "13800000001", {"budget": 10})
    assert traffic.form_values(one) == {"name": "王", "phone": "138 0000-0001", "budget": "10"}
