"""Child processes, here or on a host: started, watched, logged, and ended with their parent."""
