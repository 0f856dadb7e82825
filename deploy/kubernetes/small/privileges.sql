-- A poller of CRM sync sees all open transactions, so that it reads nothing too early; a dispatcher of Feed sees the
-- statements of other users, to which it gives way.
GRANT PROCESS ON *.* TO msgplatform@'%';
