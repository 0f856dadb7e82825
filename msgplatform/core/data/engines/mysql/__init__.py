"""Django's backend (ENGINE) for MySQL and MariaDB, with support for nodes of a cluster."""
