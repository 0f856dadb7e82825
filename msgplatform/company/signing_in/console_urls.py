from django.urls import path

from msgplatform.company.signing_in.pages import confirm
from msgplatform.company.signing_in.passwords import ChoosePasswordView
from msgplatform.company.signing_in.sessions import own_sessions, reset_factors, sessions_of

urlpatterns = [
    path("password/<str:uidb64>", ChoosePasswordView.as_view(), name="choose-password"),
    path("confirm", confirm, name="confirm"),
    path("sessions", own_sessions, name="sessions"),
    path("people/<int:person_id>/sessions", sessions_of, name="person-sessions"),
    path("people/<int:person_id>/second-factors", reset_factors, name="reset-factors"),
]
