"""The local API: HTTP on loopback, a projection of the action table. No logic of its own (DESIGN 8)."""
