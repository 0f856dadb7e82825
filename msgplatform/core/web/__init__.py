"""Web servers as the core knows them: counts of requests, long polls, the console's address."""
