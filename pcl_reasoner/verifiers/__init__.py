"""What decides whether a response is right, by kind of problem."""
