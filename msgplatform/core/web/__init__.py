"""Web servers as the core knows them: their requests, long polls, and the address of the console."""
