"""The command, environment and key of a vLLM server, on this machine and on hosts."""
