from django.apps import AppConfig

from msgplatform.core import flows


class LettersConfig(AppConfig):
    name = "tests.letters"
    label = "letters"
    verbose_name = "Letters"

    def ready(self) -> None:
        from tests.letters.flow import FLOW

        flows.register(FLOW)
