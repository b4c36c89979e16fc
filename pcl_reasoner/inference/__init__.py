"""Model servers, and the client that sends them requests."""
