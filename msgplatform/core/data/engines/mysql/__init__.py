"""Django's backend for MySQL and MariaDB, with what is true of a node of a cluster (ENGINE)."""
