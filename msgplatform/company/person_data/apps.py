from django.apps import AppConfig


class PersonDataConfig(AppConfig):
    """One person's data: found, exported, erased."""

    name = "msgplatform.company.person_data"

    def ready(self) -> None:
        from msgplatform.core import features

        features.upkeep.append(f"{self.name}.runner.ErasureRunner")
        features.web_threads.append(f"{self.name}.runner.keep_in_thread")
