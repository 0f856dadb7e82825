"""JSON: readable texts, depth of nesting, and schemas."""
