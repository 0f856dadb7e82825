from msgplatform.operation.management.no_rq_workers import Command  # noqa: F401 - refuses
