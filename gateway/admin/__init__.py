"""SMS in the console.

gateways    the operator's SMGs, with their live links and what waits for them
accounts    how business systems send; the test SMS, one text to one number, followed to its end
archive     the lists of MOs, Reports and changes of users
"""

from gateway.admin import accounts, archive, gateways

__all__ = ["accounts", "archive", "gateways"]
