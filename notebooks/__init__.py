"""What-if questions as notebooks, and what runs them (notebooks/README.md)."""
