"""What keeps an installation running and shows how it does."""
