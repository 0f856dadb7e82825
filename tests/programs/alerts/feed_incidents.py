"""Incidents of Feed. No dispatcher works on the topic vip: see `stage.py`."""

from msgplatform.models import Biz, FailureGroup
from notify.feed.models import EventQueue
from tests.programs.alerts.incidents import Course, Places, incident, refuse
from tests.support.feed_rows import post, related, visited


@incident("feed.set_aside", r"set aside.*IntegrityError|events were set aside: friend 1")
def a_timeline_takes_no_entry(places: Places) -> Course:
    biz = Biz.objects.create(name="town")
    related(biz, ("ann", "befriend", "bob"))
    visited(biz, "bob")
    refuse("INSERT", "feed_broadcast", "NEW.fri_uid = 'bob'")
    post(biz, "ann")
    yield
    FailureGroup.objects.filter(flow="feed").update(count=0)


@incident("feed.late", r"topic vip.*The oldest has waited for \d+ seconds")
def nobody_works_on_a_topic(places: Places) -> Course:
    biz = Biz.objects.create(name="stars")
    related(biz, ("bob", "follow", "ann"))
    visited(biz, "bob")
    post(biz, "ann", topic="vip")
    yield
    EventQueue.objects.filter(topic="vip").delete()
