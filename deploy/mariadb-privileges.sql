-- To see all open transactions, so that a poller of CRM sync and a dispatcher of Feed read nothing too early.
GRANT PROCESS ON *.* TO msgplatform@'%';
