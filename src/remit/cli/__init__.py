"""The command line: for people, and for scripts that people write."""
