from django.apps import AppConfig

from msgplatform.core import flows


class HiveConfig(AppConfig):
    name = "tests.hive"
    label = "hive_addresses"
    verbose_name = "Hive"

    def ready(self) -> None:
        from tests.hive.flow import HiveFlow

        flows.register(HiveFlow())
