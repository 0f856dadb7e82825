from django.contrib import admin

from msgplatform.doors.admin import ReadOnlyAdmin
from tests.letters.models import Letter


@admin.register(Letter)
class LetterAdmin(ReadOnlyAdmin):
    list_display = ("id", "biz", "text", "delivered")
