"""From the torch dialect's backend contract to what backends read."""
