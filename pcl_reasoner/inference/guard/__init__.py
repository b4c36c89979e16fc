"""A folder for a server's PYTHONPATH: it must have nothing but the guard."""
