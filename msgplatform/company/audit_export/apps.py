from django.apps import AppConfig


class AuditExportConfig(AppConfig):
    """The audit log as signed, chained lines that leave the platform."""

    name = "msgplatform.company.audit_export"

    def ready(self) -> None:
        from msgplatform.company.audit_export import address  # noqa: F401
        from msgplatform.core import features

        features.upkeep.append(f"{self.name}.exporter.ExportThread")
