from msgplatform.company.alerting import messages_admin, setup_admin  # noqa: F401
