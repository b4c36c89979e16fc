"""The program that runs in a sandbox, and what it shares with the checker outside.

source.py puts the files together as one text. The interpreter in the sandbox sees no package and
may be older than ours: the other files import only the standard library, and Python 3.9 reads them.
"""
