"""The texts of messages: their charsets, and long ones in parts."""
