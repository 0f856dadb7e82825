from django.urls import path

from tests.letters.views import LetterListView

urlpatterns = [path("letters", LetterListView.as_view(), name="letters")]
