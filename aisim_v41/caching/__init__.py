"""What is kept of a sequence between requests, where, and what it takes to have it back."""
