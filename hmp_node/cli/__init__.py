"""The command line: verbs that ask the running node and print what it answers (DESIGN 8)."""
