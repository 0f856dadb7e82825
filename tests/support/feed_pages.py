"""The pages of Feed's console, as tests ask for them."""

from typing import Any

from django.contrib.auth.models import Permission, User
from django.test import Client

ADMIN = "/admin/feed/"
POSTS = "/console/search/feed"
EVENTS, USERS = "eventqueue/", "eventqueue/users/"
SCHEDULER = "eventqueue/scheduler/"
STATISTICS, STATISTICS_FILE = "/console/statistics?flow=feed", "/console/statistics.csv?flow=feed"
PAGES = (POSTS, EVENTS, USERS, SCHEDULER)
ALL = ("view_feed", "view_eventqueue", "view_feeduser")


def address(path: str) -> str:
    """Pages of the admin are named by the end of their address."""
    return path if path.startswith("/") else ADMIN + path


def get(client: Client, path: str, status: int = 200) -> str:
    answer = client.get(address(path))
    assert answer.status_code == status, (path, answer.status_code)
    return answer.content.decode()


def listed(client: Client, path: str) -> list[int]:
    answer = client.get(ADMIN + path)
    assert answer.status_code == 200, (path, answer.status_code)
    return [row.pk for row in answer.context["cl"].result_list]


def cell(client: Client, path: str, column: str) -> list[str]:
    """A column's text in each row of a list."""
    shown = client.get(ADMIN + path).context["cl"]
    return [str(getattr(shown.model_admin, column)(row)) for row in shown.result_list]


def person(name: str, *permissions: str) -> Client:
    user = User.objects.create_user(name, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def replay(client: Client, *qids: int, **given: str) -> Any:
    data = {"action": "replay", "_selected_action": qids, "index": 0, **given}
    return client.post(ADMIN + EVENTS, data, follow=True)
