from django.urls import path
from django.utils.translation import gettext_lazy as _

from msgplatform.company.person_data import pages
from msgplatform.core.features import MenuEntry

urlpatterns = [
    path("person-data", pages.person_data, name="person-data"),
    path("person-data/erasures/<slug:key>", pages.erasure, name="erasure"),
]
menu = [MenuEntry(_("One person's data"), "person_off", "console:person-data", pages.may_open)]
