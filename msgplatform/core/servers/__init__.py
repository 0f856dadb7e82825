"""Private Redis servers, and child processes that end with their parent."""
