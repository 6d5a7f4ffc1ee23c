"""The command line: one thin module a command, and nothing heavy before a command needs it."""
