"""SMS in the console.

gateways    the operator's SMGs, with their live links and what waits for them
accounts    how business systems send
trial_sms   one text to one number, followed to its end
archive     the lists of MOs, Reports and changes of users
fields      form fields: passwords that are never shown, one item a line
"""

from gateway.admin import accounts, archive, gateways

__all__ = ["accounts", "archive", "gateways"]
