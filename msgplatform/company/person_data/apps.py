from django.apps import AppConfig


class PersonDataConfig(AppConfig):
    """One person's data: found, exported, erased."""

    name = "msgplatform.company.person_data"

    def ready(self) -> None:
        from msgplatform.company.person_data.list_keeping import keep_in_thread
        from msgplatform.company.person_data.runner import ErasureRunner
        from msgplatform.core import features
        from msgplatform.jobs import upkeep

        upkeep.register(ErasureRunner)
        features.web_threads.append(keep_in_thread)
