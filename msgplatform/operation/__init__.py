"""Functions that keep an installation running and show its state."""
