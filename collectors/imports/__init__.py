"""Tables and traces of others, through the library."""
