"""Private Redis and MariaDB servers, and child processes that end with their parent."""
