"""From programs as people write them to the torch dialect."""
