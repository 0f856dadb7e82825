"""Private Redis and MariaDB servers, child processes that end with their parent, and programs that
print their address."""
