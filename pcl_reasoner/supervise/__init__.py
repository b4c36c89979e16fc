"""One child process, here or on a host: started, watched, logged, ended with its parent."""
