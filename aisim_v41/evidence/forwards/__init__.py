"""From measured whole forwards to a predictor of any step: numerics on plain arrays."""
