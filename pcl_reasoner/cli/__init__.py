"""The command line: one file a group of commands. Only this room prints and exits."""
