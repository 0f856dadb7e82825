"""Private Redis servers, child processes that end with their parent, and the errors in logs."""
