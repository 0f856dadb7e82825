from django.apps import AppConfig


class PersonDataConfig(AppConfig):
    """One person's data: found, exported, erased."""

    name = "msgplatform.company.person_data"

    def ready(self) -> None:
        from msgplatform.company.person_data.runner import ErasureRunner
        from msgplatform.jobs import upkeep

        upkeep.register(ErasureRunner)
