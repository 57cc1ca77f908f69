"""Speed of the library, measured; never asserted in tests."""
