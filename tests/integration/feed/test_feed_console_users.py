"""The console of Feed: what a user sees, and why."""

import pytest
from django.test import Client

from msgplatform.models import Biz
from notify.feed.intake import posts
from notify.feed.models import FeedUser
from tests.support import feed_rows
from tests.support.feed_pages import (
    ADMIN,
    USERS,
    get,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]


@pytest.fixture
def biz() -> Biz:
    return Biz.objects.create(name="orders")


class TestUsers:
    def user(self, client: Client, uid: str, query: str = "") -> str:
        return get(client, f"{USERS}?system=orders&uid={uid}{query}")

    @pytest.mark.parametrize(
        ("query", "says"),
        [
            ("system=nothing&uid=ann", "There is no system named nothing."),
            ("system=orders&uid=a%20b", "visible ASCII characters without spaces"),
            ("system=orders&uid=", "This field is required"),
            ("uid=ann", "This field is required"),
            ("system=orders&uid=" + "x" * 65, "at most 64 characters"),
            ("system=orders&uid=%00", "Null characters are not allowed"),
        ],
    )
    def test_what_is_wrong_is_said_at_its_field(
        self, admin_client: Client, biz: Biz, query: str, says: str
    ) -> None:
        page = get(admin_client, f"{USERS}?{query}")
        assert says in page
        assert "Followers" not in page

    def test_figures_and_relations(self, admin_client: Client, biz: Biz) -> None:
        feed_rows.related(
            biz, ("ann", "befriend", "bob"), ("cid", "follow", "ann"), ("ann", "follow", "dan"),
            ("ann", "block", "eve"),
        )  # fmt: skip
        feed_rows.visited(biz, "ann")
        page = self.user(admin_client, "ann")
        assert "active reader" in page
        figures = dict(admin_client.get(
            f"{ADMIN}{USERS}?system=orders&uid=ann").context["figures"])  # fmt: skip
        assert (figures["friends"], figures["followers"]) == ("1", "1")
        for show, other, others in (
            ("friends", "bob", ("cid", "dan", "eve")), ("followers", "cid", ("bob", "dan", "eve")),
            ("follows", "dan", ("bob", "cid", "eve")), ("blocks", "eve", ("bob", "cid", "dan")),
        ):  # fmt: skip
            page = self.user(admin_client, "ann", f"&show={show}")
            assert f">{other}</a>" in page, show
            assert not [name for name in others if f">{name}</a>" in page], show
        assert ">ann</a>" in self.user(admin_client, "eve", "&show=blocked")
        assert "Is blocked by nobody." in self.user(admin_client, "ann", "&show=blocked")
        assert "has never read a timeline" in self.user(admin_client, "nobody")

    @pytest.mark.parametrize("show", ["followers", "follows"])
    def test_relations_are_read_page_by_page(
        self, admin_client: Client, biz: Biz, monkeypatch: pytest.MonkeyPatch, show: str
    ) -> None:
        monkeypatch.setattr("notify.feed.admin.users.RELATIONS_PAGE", 3)
        others = [f"u+{n}&?" for n in range(7)]
        pairs = [("ann", o) if show == "follows" else (o, "ann") for o in others]
        feed_rows.related(biz, *((a, "follow", b) for a, b in pairs))
        found: list[str] = []
        address = f"{ADMIN}{USERS}?system=orders&uid=ann&show={show}"
        while address:
            context = admin_client.get(address).context
            found += [line.other for line in context["lines"]]
            address = context["next"] and f"{ADMIN}{USERS}?{context['next']}"
        assert found == others

    def test_other_systems_have_other_users(self, admin_client: Client, biz: Biz) -> None:
        other = Biz.objects.create(name="other")
        feed_rows.related(other, ("cid", "follow", "ann"))
        assert "has never read a timeline" in self.user(admin_client, "ann")
        assert "No followers." in self.user(admin_client, "ann", "&show=followers")


class TestTimeline:
    def see(self, client: Client, uid: str, query: str = "") -> tuple[list[int], int | None]:
        context = client.get(f"{ADMIN}{USERS}?system=orders&uid={uid}{query}").context
        return [post.id for post, _author in context["posts"]], context["next"]

    def test_it_is_what_the_user_sees(self, admin_client: Client, biz: Biz) -> None:
        feed_rows.related(biz, ("ann", "befriend", "bob"), ("cid", "follow", "ann"))
        feed_rows.visited(biz, "bob")
        friend, vip = (feed_rows.post(biz, "ann", topic=topic) for topic in ("friend", "vip"))
        own = feed_rows.post(biz, "bob", "my own")
        feed_rows.drain()
        assert self.see(admin_client, "bob") == ([own, vip, friend], None)
        assert self.see(admin_client, "cid") == ([vip], None)
        assert self.see(admin_client, "dan") == ([], None)
        posts.delete(biz.pk, vip)
        assert self.see(admin_client, "bob") == ([own, friend], None)
        # To look at it here is no visit: cid's timeline is not written because of it.
        assert not FeedUser.objects.get(biz_id=biz.pk, uid="cid").active
        assert "unread" in get(admin_client, f"{USERS}?system=orders&uid=bob")

    def test_page_by_page(
        self, admin_client: Client, biz: Biz, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("notify.feed.admin.users.PAGE", 3)
        made = [feed_rows.post(biz, "ann") for _ in range(7)]
        found, before = self.see(admin_client, "ann")
        while before:
            more, before = self.see(admin_client, "ann", f"&before={before}")
            found += more
        assert found == made[::-1]
        assert self.see(admin_client, "ann", "&before=x")[0] == made[:-4:-1]


class TestWhy:
    def why(self, client: Client, uid: str, post: object) -> str:
        return get(client, f"{USERS}?system=orders&uid={uid}&post={post}")

    def test_the_answer_and_its_reasons(self, admin_client: Client, biz: Biz) -> None:
        feed_rows.related(biz, ("ann", "befriend", "bob"), ("cid", "follow", "ann"))
        feed_rows.visited(biz, "bob", "cid")
        done = feed_rows.post(biz, "ann")
        feed_rows.drain()
        failed = feed_rows.set_aside(biz, "ann")
        for uid, post, seen, says in (
            ("bob", done, True, "The post is written in the timeline."),
            ("bob", failed, False, "failed and was set aside"),
            ("cid", done, False, "but the post is for friends."),
            ("dan", done, False, "does not follow them."),
            ("bob", 1, False, "There is no post with this id in this system."),
        ):  # fmt: skip
            page = self.why(admin_client, uid, post)
            assert says in page, (uid, says)
            assert ("The user sees this post." in page) == seen
        assert f'href="/console/feed/{failed}"' in self.why(admin_client, "bob", failed)
        assert "/console/feed/1" not in self.why(admin_client, "bob", 1)

    @pytest.mark.parametrize("post", ["", "x", "-1", "9" * 19, "9" * 30, "%00"])
    def test_what_is_no_post(self, admin_client: Client, biz: Biz, post: str) -> None:
        page = self.why(admin_client, "bob", post)
        assert "<em>" in page
        assert "The user sees" not in page
