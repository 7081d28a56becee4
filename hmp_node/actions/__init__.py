"""The only way in: one table of actions, one gate, one module a subject (DESIGN 7)."""
