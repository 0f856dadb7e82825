"""The console of CRM sync as a person with some permissions sees it."""

from typing import Any

from django.contrib.auth.models import Permission, User
from django.test import Client

ADMIN = "/admin/crmsync/"


def post(client: Client, path: str, data: dict[str, Any] | None = None, status: int = 200) -> str:
    answer = client.post(ADMIN + path, data or {})
    assert answer.status_code == status, answer.content.decode()[:3000]
    return answer.content.decode()


def get(client: Client, path: str) -> str:
    answer = client.get(ADMIN + path)
    assert answer.status_code == 200, answer.status_code
    return answer.content.decode()


def person(name: str, *permissions: str) -> Client:
    user = User.objects.create_user(name, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client
