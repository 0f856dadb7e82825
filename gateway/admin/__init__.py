"""SMS in the console.

settings    the operator's SMGs, with their live links and what waits for them; how business systems
            send; the test SMS, one text to one number, followed to its end
archive     the lists of MOs, Reports and changes of users
"""

from gateway.admin import archive, settings

__all__ = ["archive", "settings"]
