"""The page of a user: the delivery of the user's posts, the timeline, the relations.

Users have no row before their first visit or relation. So there is no list: the page asks for a
system and a user. All choices are in the address.
"""

from datetime import datetime
from typing import Any

import msgspec
from django import forms
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest, HttpResponse, QueryDict
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy as _

from msgplatform.core import personal
from msgplatform.core.errors import InvalidInput
from msgplatform.doors.admin import ModelAdmin, TextInput, cells, row_id, sees_personal
from msgplatform.doors.admin.pages import show_page
from msgplatform.models import Biz
from notify.feed import timeline
from notify.feed.intake.posts import check_uid
from notify.feed.messages import explanations
from notify.feed.messages.states import user_address
from notify.feed.models import FeedUser, Friend
from notify.feed.models.posts import MAX_UID
from notify.feed.models.users import NOTHING_WRITTEN

PAGE = 20  # posts of a timeline
RELATIONS_PAGE = 50
_Relation = Friend.Relation
_MAX_OFFERED = 500  # systems that the field offers; people type the names of others
_TIMELINE = "timeline"


class UserForm(forms.Form):
    system = forms.CharField(
        label=_("System"),
        max_length=64,
        widget=TextInput({"list": "systems", "autocomplete": "off", "required": True}),
    )
    uid = forms.CharField(
        label=_("User"),
        max_length=MAX_UID,
        widget=TextInput({"autocomplete": "off", "spellcheck": "false", "required": True}),
        help_text=_("The whole id that the system gives the user"),
    )

    def clean_system(self) -> Biz:
        name = self.cleaned_data["system"]
        biz = Biz.objects.filter(name=name).first()
        if biz is None:
            raise ValidationError(gettext("There is no system named %s.") % name)
        return biz

    def clean_uid(self) -> str:
        uid: str = self.cleaned_data["uid"]
        try:
            check_uid(uid)
        except InvalidInput as error:
            raise ValidationError(str(error)) from None
        return uid


class WhyForm(forms.Form):
    post = forms.CharField(
        label=_("Post"),
        max_length=19,
        widget=TextInput({"autocomplete": "off", "spellcheck": "false", "required": True}),
    )

    def clean_post(self) -> int:
        number = row_id(self.cleaned_data["post"])
        if number is None:
            raise ValidationError(gettext("Write the id of a post: a whole number."))
        return number


def is_allowed(request: HttpRequest) -> bool:
    """True if this person may see users: their page shows posts too."""
    user: Any = request.user
    return bool(user.has_perms(("feed.view_feed", "feed.view_feeduser")))


def link(system: str, uid: str) -> SafeString:
    """The user's id as a link to the user's page."""
    return cells.link(user_address(system, uid), uid)


def view(model_admin: ModelAdmin, request: HttpRequest) -> HttpResponse:
    """The page, for people with the permissions to see posts and users."""
    if not is_allowed(request):
        raise PermissionDenied
    systems = list(Biz.objects.order_by("name").values_list("name", flat=True)[:_MAX_OFFERED])
    is_submitted = "uid" in request.GET or "system" in request.GET
    initial = {"system": systems[0]} if len(systems) == 1 else {}
    form = UserForm(request.GET if is_submitted else None, initial=initial)
    details = _page(request, form) if form.is_valid() else {}
    return show_page(
        model_admin, request, "admin/feed/users.html", gettext("Users"), form=form,
        systems=systems, **details,
    )  # fmt: skip


def _page(request: HttpRequest, form: UserForm) -> dict[str, Any]:
    biz, uid = form.cleaned_data["system"], form.cleaned_data["uid"]
    user = FeedUser.objects.filter(biz_id=biz.pk, uid=uid).first()
    address = urlencode({"system": biz.name, "uid": uid})
    show = request.GET.get("show", _TIMELINE)
    context: dict[str, Any] = {
        "biz": biz, "uid": uid, "feed_user": user, "address": address, "show": show,
        "figures": _figures(biz, uid, user), "sides": SIDES.items(),
    }  # fmt: skip
    if show not in SIDES:
        # A look in the console does not count as a visit of the user.
        before = row_id(request.GET.get("before"))
        page = timeline.read(biz.pk, uid, before, PAGE, visit=False)
        posts = page.posts
        if not sees_personal(request):
            posts = [msgspec.structs.replace(p, data=personal.mask_content(p.data)) for p in posts]
        context |= {
            "posts": [(post, link(biz.name, post.uid)) for post in posts],
            "next": page.next, "is_later": before is not None,
        }  # fmt: skip
        context |= _why(biz, uid, request.GET)
    else:
        side = SIDES[show]
        rows = Friend.objects.filter(
            biz_id=biz.pk, relation=side.relation,
            **{side.own_column: uid, f"{side.other_column}__gt": request.GET.get("after", "")},
        )  # fmt: skip
        if side.own_column == "fri_uid":
            # In the index of readers `delivery` comes before `relation`. The condition names every
            # delivery, so that the database can use the index.
            rows = rows.filter(delivery__in=Friend.Delivery.values)
        lines = [
            Line(
                other := getattr(row, side.other_column),
                urlencode({"system": biz.name, "uid": other}),
                str(Friend.Delivery(row.delivery).label),
                row.create_date,
            )
            for row in rows.order_by(side.other_column)[: RELATIONS_PAGE + 1]
        ]
        has_more = len(lines) > RELATIONS_PAGE
        query = urlencode(
            {"show": show, "after": lines[RELATIONS_PAGE - 1].other if has_more else ""}
        )
        context |= {
            "side": side, "lines": lines[:RELATIONS_PAGE],
            "next": f"{address}&{query}" if has_more else "", "is_later": "after" in request.GET,
        }  # fmt: skip
    return context


def _why(biz: Biz, uid: str, query: QueryDict) -> dict[str, Any]:
    """The form that asks for a post, and the reasons why the post is in the timeline or not."""
    form = WhyForm(query if "post" in query else None)
    if not form.is_valid():
        return {"why_form": form}
    post: int = form.cleaned_data["post"]
    answer = explanations.explain(biz.pk, uid, post)
    sentences = [str(reason.label) for reason in answer.reasons]
    is_known = explanations.Reason.UNKNOWN not in answer.reasons
    return {"why_form": form, "answer": answer, "sentences": sentences,
            "post_id": post if is_known else None}  # fmt: skip


def _figures(biz: Biz, uid: str, user: FeedUser | None) -> list[tuple[str, str]]:
    if user is None:
        return []
    is_empty = user.floor == NOTHING_WRITTEN
    unread = timeline.count_unread(biz.pk, uid)
    return [
        (gettext("friends"), str(user.friends)),
        (gettext("followers"), str(user.followers)),
        (gettext("posts are"), str(FeedUser.Merging(user.merging).label)),
        (gettext("last visit"), cells.moment(user.visit_date) or gettext("never")),
        (gettext("unread"), f"{unread.count}+" if unread.has_more else str(unread.count)),
        (gettext("timeline"), gettext("not written") if is_empty else gettext("written")),
    ]


# -- relations -------------------------------------------------------------------------------------
class Side(msgspec.Struct, frozen=True):
    """Rows of one relation: `own_column` has the user, and `other_column` the other user.

    `delivery`: the heading of the column with the delivery of posts; '': no column.
    """

    title: Any
    relation: str
    own_column: str
    other_column: str
    delivery: Any
    empty: Any


SIDES = {
    "friends": Side(
        _("Friends"), _Relation.FRIEND, "fri_uid", "uid", _("Their posts are"),
        _("No friends."),
    ),
    "follows": Side(
        _("Follows"), _Relation.FOLLOW, "fri_uid", "uid", _("Their posts are"),
        _("Follows nobody."),
    ),
    "followers": Side(
        _("Followers"), _Relation.FOLLOW, "uid", "fri_uid", _("Posts reach them"),
        _("No followers."),
    ),
    "blocks": Side(
        _("Has blocked"), _Relation.BLOCK, "fri_uid", "uid", "", _("Has blocked nobody."),
    ),
    "blocked": Side(
        _("Is blocked by"), _Relation.BLOCK, "uid", "fri_uid", "", _("Is blocked by nobody."),
    ),
}  # fmt: skip


class Line(msgspec.Struct, frozen=True):
    other: str
    address: str  # the query of their page
    delivery: str
    since: datetime
