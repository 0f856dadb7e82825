"""The way of a message in SGIP's frames, without SGIP: with a plain protocol, and with streams."""
