"""The forms of the console, without a page."""

from typing import Any

from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import Model
from django.test import RequestFactory


def form_class(model: type[Model], row: Model | None = None) -> Any:
    """The form in which a superuser makes a row, or changes this one."""
    request = RequestFactory().get("/")
    request.user = User(username="tester", is_superuser=True)
    of_model = admin.site.get_model_admin(model)
    return of_model.get_form(request, row, change=row is not None)
