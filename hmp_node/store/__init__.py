"""The store: one database, one writer, many readers, and one module a subject (DESIGN 6)."""
