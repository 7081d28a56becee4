"""MCP for coding assistants: a door that shows some of the actions as tools, resources and prompts (DESIGN 7, 8)."""
