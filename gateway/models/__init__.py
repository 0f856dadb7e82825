"""SMS: gateways and accounts, and the archive of everything that went over them."""

from gateway.models.archive import SgipMo, SgipMt, SgipMtPart, SgipReport, SgipUserRpt
from gateway.models.settings import SmsAccount, SmsGateway

__all__ = [
    "SgipMo", "SgipMt", "SgipMtPart", "SgipReport", "SgipUserRpt", "SmsAccount", "SmsGateway",
]  # fmt: skip
