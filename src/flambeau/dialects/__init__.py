"""The dialects that Flambeau adds to xDSL's."""
