"""What servers answer: read within limits, parsed by one schema, failures as exceptions."""
