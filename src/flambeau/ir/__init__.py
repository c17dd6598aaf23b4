"""What every stage shares on top of xDSL."""
